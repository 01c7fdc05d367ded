"""The texts of a task around a Python function where it stands: the adapter that calls it, and reference.py.

Both import the function from the repository; where it is frozen, reference.py has the frozen module in its place, whoever imports it.
Must not know how arguments were found.
"""

from __future__ import annotations

from msgspec import Struct

from keepfast.task.pyimports import Module


class Place(Struct, frozen=True):
    """Where a module is, for a file in the task folder. `up`: the repository from there; `top`: the folder that imports begin at, "" for
    the repository itself; `name`: dotted, "" to load `path`; `bare`: packages that are not run, with their folders."""

    up: str
    top: str
    name: str
    path: str
    bare: tuple[tuple[str, str], ...] = ()


class Oracle(Struct, frozen=True):
    """`copies`: frozen modules with their files below frozen/. `frozen_itself`: whether the function's own file is one of them."""

    place: Place
    copies: tuple[tuple[Module, str], ...]
    frozen_itself: bool


_BARE = """\
for _name, _folder in {packages}:
    _package = types.ModuleType(_name)  # the package without its __init__.py
    _package.__path__ = [str(ROOT / _folder)]
    _package.__spec__ = importlib.machinery.ModuleSpec(_name, None, is_package=True)  # whoever asks whether it is installed reads it
    sys.modules[_name] = _package
"""
_BY_PATH = """\
_spec = importlib.util.spec_from_file_location("{name}", {base} / "{path}")
_module = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = _module
_spec.loader.exec_module(_module)
{function} = _module.{function}
"""
_FINDER = '''\
class Frozen(importlib.abc.MetaPathFinder):
    """Modules that a candidate may change come from frozen/."""

    def find_spec(self, name, path=None, target=None):
        if name not in FROZEN:
            return None
{found}

sys.meta_path.insert(0, Frozen())
'''
_SPEC = '        return importlib.util.spec_from_file_location(name, HERE / "frozen" / FROZEN[name])\n'
_PACKAGE = """\
        spec = importlib.util.spec_from_file_location(name, HERE / "frozen" / FROZEN[name])
        if spec.submodule_search_locations is not None:  # a package: its other modules are in the repository
            spec.submodule_search_locations.append(str((ROOT / FROZEN[name]).parent))
        return spec
"""


def adapter(place: Place, call: str, names: str, body: str) -> str:
    """adapter.py. `call`: FUNCTION or CLASS.FUNCTION; `body`: lines with `{function}` for it."""
    doc = f'"""Calls {call}() of {place.path} as it stands. Yours: a candidate may change {place.path}, not this file."""'
    first, function = call.partition(".")[0], _function("kernel", names, _indented(body.replace("{function}", call)))
    if place.name and not place.top and not place.bare:
        return f"{doc}\n\nimport torch\nfrom {place.name} import {first}\n\n\n{function}"
    setup = _setup(place, path=bool(place.top)) + _loaded(place, first, frozen=False)
    head = f'ROOT = Path(__file__).resolve().parent.joinpath("{place.up}").resolve()\n'
    return f"{doc}\n\n{_imports(head + setup)}\n{head}{setup}\n\n{function}"


def reference(oracle: Oracle, texts: tuple[str, str], call: str, code: tuple[str, str]) -> str:
    """reference.py. `texts`: what it says and inputs(); `code`: names of the arguments, and lines with `{function}` for the call."""
    (doc, inputs), (names, body), place = texts, code, oracle.place
    head = f'HERE = Path(__file__).resolve().parent\nROOT = HERE.joinpath("{place.up}").resolve()\n'
    head += _finder(tuple((module.name, path) for module, path in oracle.copies if module.name))
    first = call.partition(".")[0]
    setup = _setup(place, path=True) + ("" if place.name else _loaded(place, first, frozen=oracle.frozen_itself))
    what = '    """What is right for these arguments."""\n'
    late = f"    from {place.name} import {first}  # here, as it may want a GPU, and inputs() does not\n\n" if place.name else ""
    function = _function("reference", names, what + late + _indented(body.replace("{function}", call)))
    return f'"""{doc}"""\n\n{_imports(head + setup + inputs)}\n{head}{setup}\n\n{inputs}\n\n{function}'


def _finder(copies: tuple[tuple[str, str], ...]) -> str:
    """What puts frozen modules in their places."""
    if not copies:
        return ""
    lines = "".join(f'    "{name}": "{path}",\n' for name, path in copies)
    package = any(path.endswith("/__init__.py") for _, path in copies)
    return f"FROZEN = {{\n{lines}}}\n\n\n" + _FINDER.format(found=_PACKAGE if package else _SPEC)


def _imports(code: str) -> str:
    """Imports of what the code uses, and of torch."""
    used = [
        name for name in ("hashlib", "importlib.abc", "importlib.machinery", "importlib.util", "json", "sys", "types") if f"{name}." in code
    ]
    lines = [f"import {name}" for name in used] + (["from pathlib import Path"] if "Path(" in code else [])
    return "".join(f"{line}\n" for line in lines) + ("\n" if lines else "") + "import torch\n"


def _setup(place: Place, *, path: bool) -> str:
    """The folder that imports begin at, and packages that are not run. A candidate's process looks in the repository anyway."""
    folder = f'ROOT / "{place.top}"' if place.top else "ROOT"
    packages = "[" + ", ".join(f'("{name}", "{where}")' for name, where in place.bare) + "]"
    return (f"sys.path.insert(0, str({folder}))\n" if path else "") + (_BARE.format(packages=packages) if place.bare else "")


def _loaded(place: Place, function: str, *, frozen: bool) -> str:
    if place.name:
        return f"\nfrom {place.name} import {function}  # noqa: E402\n"
    stem = "".join(c if c.isalnum() else "_" for c in place.path.rpartition("/")[2].removesuffix(".py"))
    base = 'HERE / "frozen"' if frozen else "ROOT"
    return "\n" + _BY_PATH.format(name=f"_{stem}", base=base, path=place.path, function=function)


def _function(name: str, names: str, body: str) -> str:
    return f"@torch.no_grad()\ndef {name}({names}):\n{body}"


def _indented(body: str) -> str:
    return "".join(f"    {line}\n" for line in body.splitlines())
