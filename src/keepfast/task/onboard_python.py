"""`keepfast init NAME --from FILE.py:FUNCTION`: a task around a Triton or torch function where it stands, with its imports.

Nothing is copied but what is frozen; an adapter in the task folder calls the function. The repository's code is read, never run.
"""

from __future__ import annotations

import glob
import os
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from keepfast.errors import UsageError
from keepfast.model import Signature
from keepfast.task import binding, given, newfolder, pyimports, pysource, python_texts, torch_texts
from keepfast.task.file import NAME
from keepfast.task.found import Found
from keepfast.task.given import Cases, Drawn, Given
from keepfast.task.newfolder import Made
from keepfast.task.places import FROZEN, REFERENCE
from keepfast.task.pyimports import Imports, Module
from keepfast.task.pysource import Function
from keepfast.task.python_texts import Place

NAMES = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?"  # FUNCTION, CLASS or CLASS.FUNCTION
ADAPTER = "adapter.py"
MANY = 60  # files; more are named by folder
Right = tuple[Module, Function, Imports]  # the function that says what is right


class PythonOrigin(Struct, frozen=True):
    """A function where it stands, as the human types it on the command line."""

    source: str  # FILE.py:FUNCTION
    cases: tuple[str, ...]
    signature: str = ""
    reference: str = ""  # FILE.py:FUNCTION in torch, or "": the present function, frozen
    odd: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    also: tuple[str, ...] = ()  # further files that may be changed
    language: str = ""
    bare: bool = False  # without the `__init__.py` of the packages that the file lies in
    found: Found | None = None  # what watching it run has told: in place of cases and arguments that nothing is said of


class Plan(Struct, frozen=True):
    """All that is known before anything is written. `call`: arguments of the call, as text; `picked`: which of the returned values are
    outputs, None for all."""

    root: Path
    module: Module
    imports: Imports
    editable: tuple[Path, ...]
    function: Function
    signature: Signature
    drawn: dict[str, Given]
    cases: Cases
    call: tuple[str, ...]
    picked: tuple[int, ...] | None


def files(folder: Path, origin: PythonOrigin) -> Made:
    """Contents of every file of the new `folder`, by name, and notes."""
    plan = planned(folder, origin)
    reference = _reference(origin, plan)
    frozen = _frozen(plan, reference)
    place = _place(folder, plan, plan.module, origin)
    notes = _notes(origin, plan)
    made = {
        NAME: _task(folder, origin, plan, notes),
        REFERENCE: _reference_text(folder, origin, plan, reference, frozen),
        ADAPTER: python_texts.adapter(place, plan.function.call, _names(plan), _body(plan)),
    }
    contents = {name: text.encode() for name, text in made.items()}
    contents |= {f"{FROZEN}/{path.relative_to(plan.root).as_posix()}": path.read_bytes() for path in frozen}
    return Made(contents | (origin.found.files if origin.found else {}), notes)


def planned(folder: Path, origin: PythonOrigin) -> Plan:
    path, name = newfolder.split(origin.source, "--from FILE.py:FUNCTION", NAMES)
    root = newfolder.root(folder, path)
    found = origin.found
    cases = found.cases if found else given.cases(origin.cases, origin.odd)
    said = (found.said if found else {}) | given.arguments(origin.arguments, cases)
    function = pysource.read(path, name)
    module = pyimports.module(path, root)
    also = tuple(newfolder.inside(Path(p), root, "--source") for p in origin.also)
    bound = binding.Binder(function, said, cases, (str(path), found.returned if found else None)).bound(origin.signature)
    return Plan(
        root,
        module,
        pyimports.closure(module, root, bare=origin.bare),
        (path, *(p for p in also if p != path)),
        function,
        bound.signature,
        bound.drawn,
        cases,
        bound.call,
        bound.picked,
    )


# --------------------------------------------------------------------------------------------- what is right


def _reference(origin: PythonOrigin, plan: Plan) -> Right | None:
    """The function of `--reference`, or None: the present one, frozen."""
    if not origin.reference:
        return None
    path, name = newfolder.split(origin.reference, "--reference FILE.py:FUNCTION", NAMES)
    module = pyimports.module(newfolder.inside(path, plan.root, "--reference"), plan.root)
    return module, pysource.read(path, name), pyimports.closure(module, plan.root, bare=origin.bare)


def _frozen(plan: Plan, reference: Right | None) -> tuple[Path, ...]:
    """Files that a candidate may change and the oracle uses: it has copies of its own."""
    if reference is None:
        return plan.editable
    used = {reference[0].path, *reference[2].files}
    return tuple(path for path in plan.editable if path in used)


def _reference_text(folder: Path, origin: PythonOrigin, plan: Plan, found: Right | None, frozen: tuple[Path, ...]) -> str:
    inputs = torch_texts.inputs_text(tuple((a.name, plan.drawn[a.name]) for a in plan.signature.args), _said(origin))
    module = found[0] if found else plan.module
    place = _place(folder, plan, module, origin)
    copies = tuple((pyimports.module(path, plan.root), path.relative_to(plan.root).as_posix()) for path in frozen)
    parts = python_texts.Oracle(place, copies, frozen_itself=module.path in frozen)
    if found is None:
        doc = f"What {plan.function.name}() of {_relative(plan, plan.module.path)} gives now, kept in {FROZEN}/, is right: same as before"
        return python_texts.reference(parts, (f"{doc}, not proven right.", inputs), plan.function.call, (_names(plan), _body(plan)))
    doc = f"What {found[1].name}() of {_relative(plan, module.path)} gives is right, also in float64."
    body = f"return {{function}}({_known(plan, found[1])})"
    return python_texts.reference(parts, (doc, inputs), found[1].call, (_names(plan), body))


def _said(origin: PythonOrigin) -> Found | None:
    """What was found, less the draws of arguments of which the human said something."""
    if origin.found is None:
        return None
    names = {text.partition("=")[0].strip() for text in origin.arguments}
    return replace(origin.found, draws={name: text for name, text in origin.found.draws.items() if name not in names})


def _known(plan: Plan, function: Function) -> str:
    """Arguments of the reference: by name where all its parameters are known, else in order."""
    args = tuple(a.name for a in plan.signature.args)
    sizes = given.places(plan.drawn, plan.cases.axes)
    needed = [p.name for p in function.parameters if not p.has_default]
    known = [p.name for p in function.parameters if p.name in args or p.name in sizes]
    if all(name in known for name in needed) and not any(p.positional for p in function.parameters):
        return ", ".join(f"{name}={name if name in args else sizes[name]}" for name in known)
    if len(needed) <= len(args) <= len(function.parameters):
        return ", ".join(args)
    names = ", ".join(p.name for p in function.parameters) or "nothing"
    what = f"`{function.name}` takes {names}; the signature has {', '.join(args) or 'nothing'}"
    raise UsageError(what, where="--reference", next_step="Give them the same names, or the same number")


# --------------------------------------------------------------------------------------------- texts


def _names(plan: Plan) -> str:
    return ", ".join(a.name for a in plan.signature.args)


def _body(plan: Plan) -> str:
    """Lines that call `{function}` and return the outputs."""
    call = f"{{function}}({', '.join(plan.call)})"
    if plan.picked is None:
        return f"return {call}"
    if not plan.picked:
        return call
    if len(plan.picked) == 1 and len(plan.function.returned or ()) > 1:
        return f"return {call}[{plan.picked[0]}]"
    return f"found = {call}\nreturn {', '.join(f'found[{i}]' for i in plan.picked)}"


def _place(folder: Path, plan: Plan, module: Module, origin: PythonOrigin) -> Place:
    up = os.path.relpath(plan.root, folder).replace(os.sep, "/")
    top = module.top.relative_to(plan.root).as_posix()
    bare = tuple((p, f"{'' if top == '.' else top + '/'}{p.replace('.', '/')}") for p in module.packages) if origin.bare else ()
    return Place(up, "" if top == "." else top, module.name, _relative(plan, module.path), bare)


def _relative(plan: Plan, path: Path) -> str:
    return path.relative_to(plan.root).as_posix()


def _task(folder: Path, origin: PythonOrigin, plan: Plan, notes: tuple[str, ...]) -> str:
    inside = folder.relative_to(plan.root).as_posix()
    written = pysource.language(pysource.text_of(plan.module.path))
    facts = torch_texts.Facts(
        title=f"{plan.function.name} of {_relative(plan, plan.module.path)}",
        signature=plan.signature.text,
        languages=(origin.language,) if origin.language else tuple(dict.fromkeys((written, "torch"))),
        entry=f"{inside}/{ADAPTER}:kernel",
        cases=plan.cases,
        over="start",
        editable=tuple(glob.escape(_relative(plan, path)) for path in plan.editable),
        root=os.path.relpath(plan.root, folder).replace(os.sep, "/"),
        frozen="" if origin.reference else f"the function as it was, in {FROZEN}/",
        roles=tuple((name, given.role(name, one)) for name, one in plan.drawn.items()),
        readable=_readable(plan),
        shapes=tuple(plan.drawn.items()),
        notes=notes,
        whole=origin.found.whole if origin.found else (),
    )
    return torch_texts.task_text(facts)


def _readable(plan: Plan) -> tuple[str, ...]:
    """What the file imports, by name; by folder when it is much."""
    paths = [path for path in plan.imports.files if path not in plan.editable]
    beside = pyimports.data((plan.module.path, *plan.imports.files), plan.root)
    named = tuple(f"{glob.escape(_relative(plan, path))}{'/**' if path.is_dir() else ''}" for path in beside)
    if len(paths) <= MANY:
        return (*(glob.escape(_relative(plan, path)) for path in paths), *named)
    firsts = dict.fromkeys(path.relative_to(plan.root).parts for path in paths)
    by_folder = dict.fromkeys(f"{glob.escape(parts[0])}/**/*.py" if len(parts) > 1 else glob.escape(parts[0]) for parts in firsts)
    return (*by_folder, *named)


def _notes(origin: PythonOrigin, plan: Plan) -> tuple[str, ...]:
    notes = list(origin.found.notes) if origin.found else []
    known = {a.split("=")[0].strip() for a in origin.arguments} | set(origin.found.said if origin.found else ())
    running = pysource.runs(pysource.text_of(plan.module.path))
    if running:
        line, text = running[0]
        more = f", and {len(running) - 1} more" if len(running) > 1 else ""
        notes.append(f'line {line} runs whenever the file is imported (`{text}`{more}): put tests under `if __name__ == "__main__":`')
    if plan.imports.missing:
        notes.append(f"it imports {', '.join(plan.imports.missing)}, which this Python does not have")
    if len(plan.imports.files) > MANY and not origin.bare and plan.module.packages:
        notes.append(
            f"importing it reads {len(plan.imports.files)} files of the repository, in every capture: --bare leaves out __init__.py"
        )
    unsaid = [name for name, one in plan.drawn.items() if isinstance(one, Drawn) and name not in known]
    if unsaid:
        shown = ", ".join(f"{n}[{','.join(d.dims if isinstance(d := plan.drawn[n], Drawn) else ())}]" for n in unsaid)
        notes.append(f"drawn as {given.DTYPE}, as nothing was said of them (--arg): {shown}")
    return tuple(notes)
