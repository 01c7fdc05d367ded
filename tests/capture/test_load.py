"""Entries are found in trees of several shapes, and in shared objects."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from keepfast.capture import load

EXTENSION = """
#include <Python.h>
static struct PyModuleDef made = {PyModuleDef_HEAD_INIT, "keepfast_extension", 0, -1, 0};
PyMODINIT_FUNC PyInit_keepfast_extension(void) {
    PyObject *module = PyModule_Create(&made);
    PyModule_AddIntConstant(module, "TEN", 10);
    return module;
}
"""


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Path]:
    paths, modules = sys.path[:], set(sys.modules)
    yield tmp_path / "tree"
    sys.path[:] = paths
    for name in set(sys.modules) - modules:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def test_an_entry_imports_its_neighbours(tree: Path) -> None:
    files = [
        (
            "kernel/kernel.py",
            b"import keepfast_tunables, common, deep\n\ndef kernel(x):\n    return x * keepfast_tunables.BLOCK + common.ONE + deep.TWO\n",
        ),
        ("kernel/keepfast_tunables.py", b"BLOCK = 64\n"),
        ("common.py", b"ONE = 1\n"),
        ("src/lib/deep.py", b"TWO = 2\n"),
    ]
    load.write(tree, files)
    load.search(tree, "kernel/kernel.py", ("src/lib",))
    assert sys.path[:3] == [str(tree / "kernel"), str(tree), str(tree / "src/lib")]
    load.search(tree, "kernel/kernel.py", ("src/lib",))
    assert sys.path.count(str(tree)) == 1
    assert load.python(tree, "kernel/kernel.py", "kernel")(2) == 131
    assert {m.__name__ for m in load.modules(tree)} == {load.MODULE, "keepfast_tunables", "common", "deep"}


def test_an_entry_hides_no_module_that_has_its_name(tree: Path) -> None:
    load.write(tree, [("json.py", b"import json as j\n\ndef kernel():\n    return j.dumps([1])\n")])
    assert load.python(tree, "json.py", "kernel")() == "[1]"


def test_an_entry_in_a_package_may_import_relatively(tree: Path) -> None:
    files = [
        ("ops_under_test/__init__.py", b""),
        ("ops_under_test/norm/__init__.py", b"from .rms import kernel\n"),
        (
            "ops_under_test/norm/rms.py",
            b"from ..eps import EPS\n\nCOUNT = []\nCOUNT.append(1)\n\ndef kernel():\n    return EPS, len(COUNT), __name__\n",
        ),
        ("ops_under_test/eps.py", b"EPS = 0.5\n"),
    ]
    load.write(tree, files)
    load.search(tree, "ops_under_test/norm/rms.py", ())
    entry = load.python(tree, "ops_under_test/norm/rms.py", "kernel")
    assert entry() == (0.5, 1, "ops_under_test.norm.rms")
    assert entry is sys.modules["ops_under_test.norm"].kernel, "loaded once"


def test_a_package_at_the_top_of_the_tree_is_no_package(tree: Path) -> None:
    load.write(tree, [("__init__.py", b"raise RuntimeError('not imported')\n"), ("kernel.py", b"def kernel():\n    return 1\n")])
    assert load.python(tree, "kernel.py", "kernel")() == 1


def test_source_can_be_read_by_a_compiler(tree: Path) -> None:
    import inspect

    load.write(tree, [("kernel.py", b"def kernel():\n    return 1\n")])
    entry = load.python(tree, "kernel.py", "kernel")
    assert inspect.getsource(entry) == "def kernel():\n    return 1\n"
    assert sys.modules[load.MODULE].kernel is entry


def test_an_entry_may_be_any_callable(tree: Path) -> None:
    load.write(tree, [("kernel.py", b"class K:\n    def __call__(self):\n        return 3\nkernel = K()\n")])
    assert load.python(tree, "kernel.py", "kernel")() == 3


@pytest.fixture
def gcc() -> str:
    found = shutil.which("gcc")
    if found is None:
        pytest.skip("no gcc")
    return found


def built(gcc: str, folder: Path, source: str) -> Path:
    (folder / "one.c").write_text(source)
    subprocess.run([gcc, "-shared", "-fPIC", str(folder / "one.c"), "-o", str(folder / "one.so")], check=True)
    return folder / "one.so"


def test_a_shared_object_is_called_with_words(gcc: str, tmp_path: Path) -> None:
    library = built(gcc, tmp_path, "#include <stdint.h>\nint keepfast_call(const uint64_t *w) { return (int)(w[0] + w[1]); }\n")
    assert load.shared(library)((ctypes.c_uint64 * 2)(40, 2)) == 42


def test_a_shared_object_that_is_none_is_an_import_error(gcc: str, tmp_path: Path) -> None:
    with pytest.raises(ImportError, match="exports no `keepfast_call`"):
        load.shared(built(gcc, tmp_path, "int other;\n"))
    (tmp_path / "text.so").write_bytes(b"not ELF")
    with pytest.raises(ImportError, match="the library does not load: "):
        load.shared(tmp_path / "text.so")


def test_an_extension_is_imported_under_the_name_it_was_built_with(gcc: str, tmp_path: Path) -> None:
    import sysconfig

    include = sysconfig.get_path("include")
    if not Path(include, "Python.h").is_file():
        pytest.skip("no headers of Python")
    (tmp_path / "one.c").write_text(EXTENSION)
    out = tmp_path / "made.so"
    subprocess.run([gcc, "-shared", "-fPIC", f"-I{include}", str(tmp_path / "one.c"), "-o", str(out)], check=True)
    load.extension(out)
    assert sys.modules.pop("keepfast_extension").TEN == 10


def test_operators_are_registered_when_there_is_no_module(gcc: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    library = built(gcc, tmp_path, "int loaded_operators = 7;\n")
    load.extension(library)
    assert str(library) in torch.ops.loaded_libraries
