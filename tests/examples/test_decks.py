"""The example tasks do what their decks promise: patches apply to every version, and right and wrong entries are right and wrong.

Runs kernels in this process, so entries that crash, hang or write after their return are only compiled here.
"""

from __future__ import annotations

import ctypes
import importlib.util
import math
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from keepfast.judge.compare import Mismatch, judge, reduction_length
from keepfast.judge.elf import code_hash
from keepfast.judge.oracle import copy, inputs_of, results_of, widen
from keepfast.model import Case, Task
from keepfast.task import abi, tunables
from keepfast.task.load import load

EXAMPLES = Path(__file__).parents[2] / "examples" / "cpu"
TASKS = ("softmax", "rmsnorm", "matmul")
START = "start"
DOES_NOT_COMPILE = ("softmax/003-two-rows",)
RIGHT = ("softmax/007-double", "softmax/014-columns-first", "rmsnorm/004-divide-each", "matmul/004-double-sums")
WRONG = (
    "softmax/004-whole-eights",
    "softmax/010-seven-of-eight",
    "softmax/011-coarse-exp",
    "rmsnorm/001-mean-of-half",
    "rmsnorm/003-leave-residual",
    "matmul/001-sixteen-bits",
    "matmul/003-whole-fours",
)
pytestmark = pytest.mark.skipif(shutil.which("gcc") is None or shutil.which("git") is None, reason="needs gcc and git")


def patches(task: str) -> list[Path]:
    return sorted((EXAMPLES / task / "deck").glob("*.patch"))


def versions(task: str) -> list[str]:
    """The start and the whole-file entries: everything that a patch may be applied to."""
    return [START, *sorted(p.name for p in (EXAMPLES / task / "deck").iterdir() if p.is_dir())]


VERSIONS = [f"{task}/{version}" for task in TASKS for version in versions(task)]
TUNED = [v for v in VERSIONS if v.endswith(START) or (EXAMPLES / v.replace("/", "/deck/") / "kernel/tunables.toml").exists()]


def workspace(tmp_path: Path, task: str, version: str = START) -> Path:
    """A copy of the task without its deck, with the files of `version`."""
    folder = tmp_path / f"{task}-{version}"
    shutil.copytree(EXAMPLES / task, folder, ignore=shutil.ignore_patterns("deck", "__pycache__"))
    if version != START:
        shutil.copytree(EXAMPLES / task / "deck" / version, folder, dirs_exist_ok=True)
    return folder


def git_apply(folder: Path, patch: Path, *options: str) -> str:
    done = subprocess.run(["git", "apply", *options, str(patch)], cwd=folder, capture_output=True, text=True, check=False)
    return done.stderr


def patched(tmp_path: Path, entry: str, version: str = START) -> Path:
    task, _, name = entry.partition("/")
    folder = workspace(tmp_path, task, version)
    assert git_apply(folder, EXAMPLES / task / "deck" / f"{name}.patch") == ""
    return folder


def compiled(folder: Path, source: str = "kernel/kernel.c", *options: str) -> str:
    """Compile as the task says into folder/kernel.so; what the compiler complained about, "" when nothing."""
    task = load(folder)
    tensors = {word.name: "float32" for word in abi.layout(task) if word.kind == "tensor"}
    (folder / "keepfast.h").write_text(abi.header(task, tensors))
    space = tunables.parse((folder / "kernel/tunables.toml").read_text())
    (folder / "keepfast_tunables.h").write_text(tunables.header(space))
    quiet = "-Wno-psabi"  # vectors wider than this CPU's are only a note
    flags = [*task.build.flags, "-fPIC", "-shared", quiet, f"-I{folder}", *options]
    argv = ["gcc", *flags, str(folder / source), "-o", str(folder / "kernel.so"), *task.build.libs]
    return subprocess.run(argv, capture_output=True, text=True, check=False).stderr


def module_at(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def called(folder: Path, task: Task, case: Case, arrays: Mapping[str, Any]) -> int:
    """Call folder/kernel.so; `arrays` holds every argument and output, which are written in place."""
    library = ctypes.CDLL(str(folder / "kernel.so"))
    values = {**arrays, **dict(case.axes), "stream": None}
    return int(library[task.entry_symbol](*[as_c(word.kind, values[word.name]) for word in abi.layout(task)]))


def as_c(kind: str, value: Any) -> Any:
    if kind == "tensor":
        return ctypes.c_void_p(value.ctypes.data)
    return {"float": ctypes.c_double, "axis": ctypes.c_int64, "stream": ctypes.c_void_p}[kind](value)


def mistakes(folder: Path, kernel: Callable[[Task, Case, Mapping[str, Any]], object] | None = None) -> list[str]:
    """What is wrong with folder/kernel.so, or with `kernel`, over the cases of the task; the largest one would take too long."""
    task = load(folder)
    run = kernel or (lambda task, case, arrays: called(folder, task, case, arrays))
    module = module_at(folder / "reference.py")
    return [f"{case.name}: {wrong}" for case in task.cases if small(case) and (wrong := _mistake(task, case, module, run))]


def small(case: Case) -> bool:
    return math.prod(size for _, size in case.axes) <= 512**3


def _mistake(task: Task, case: Case, module: ModuleType, run: Callable[[Task, Case, Mapping[str, Any]], object]) -> str:
    values = inputs_of(module, task, case, (2, 7))
    working = results_of(module, task.signature, {k: copy(v) for k, v in values.items()})
    exact = results_of(module, task.signature, {k: widen(v) for k, v in values.items()})
    arrays = {k: copy(v) for k, v in values.items()} | {r.name: np.full_like(working[r.name], np.nan) for r in task.signature.outputs}
    if run(task, case, arrays):
        return "return code"
    limits = (reduction_length(task, case), task.tolerance.scale)
    found = [judge(name, arrays[name], working[name], exact[name], limits) for name in task.signature.results]
    changed = [a.name for a in task.signature.tensors if not a.written and not np.array_equal(arrays[a.name], values[a.name])]
    return "; ".join([f.detail for f in found if isinstance(f, Mismatch)] + [f"{name} was changed" for name in changed])


@pytest.mark.parametrize("version", VERSIONS)
def test_every_patch_applies_and_compiles_as_intended(tmp_path: Path, version: str) -> None:
    task, _, name = version.partition("/")
    folder = workspace(tmp_path, task, name)
    for patch in patches(task):
        assert git_apply(folder, patch) == "", patch.name
        errors = compiled(folder, "kernel/kernel.c", "-fsyntax-only")
        if f"{task}/{patch.stem}" in DOES_NOT_COMPILE:
            assert "'j' undeclared" in errors.replace("‘", "'").replace("’", "'"), patch.name
        else:
            assert errors == "", patch.name
        assert git_apply(folder, patch, "-R") == "", patch.name


@pytest.mark.parametrize("version", VERSIONS)
def test_honest_versions_are_right(tmp_path: Path, version: str) -> None:
    task, _, name = version.partition("/")
    folder = workspace(tmp_path, task, name)
    assert compiled(folder, "kernel/kernel.c", "-Wall") == ""
    assert mistakes(folder) == []


@pytest.mark.parametrize("version", TUNED)
def test_honest_versions_are_right_at_the_far_end_of_their_tunables(tmp_path: Path, version: str) -> None:
    task, _, name = version.partition("/")
    folder = workspace(tmp_path, task, name)
    path = folder / "kernel/tunables.toml"
    text = path.read_text()
    for tunable in tunables.parse(text).tunables:
        allowed = [c for c in tunable.choices if tunables.parse(text).valid({tunable.name: c}) is None]
        text = tunables.with_values(text, {tunable.name: allowed[-1]})
    path.write_text(text)
    assert compiled(folder) == ""
    assert mistakes(folder) == []


@pytest.mark.parametrize("entry", RIGHT)
def test_slower_entries_are_right(tmp_path: Path, entry: str) -> None:
    folder = patched(tmp_path, entry)
    assert compiled(folder) == ""
    assert mistakes(folder) == []


@pytest.mark.parametrize("entry", WRONG)
def test_wrong_entries_are_wrong(tmp_path: Path, entry: str) -> None:
    folder = patched(tmp_path, entry)
    assert compiled(folder) == ""
    assert mistakes(folder) != []


def test_the_cache_answers_with_what_it_saw_first(tmp_path: Path) -> None:
    folder = patched(tmp_path, "softmax/005-remember")
    assert compiled(folder) == ""
    task = load(folder)
    case = task.cases[0]
    x, first, second = (np.zeros((case.axis("m"), case.axis("n")), np.float32) for _ in range(3))
    called(folder, task, case, {"x": x, "out": first})
    x[:, 0] = 9.0
    called(folder, task, case, {"x": x, "out": second})
    assert np.array_equal(first, second)


@pytest.mark.parametrize("version", versions("softmax"))
def test_renaming_compiles_to_the_same_code(tmp_path: Path, version: str) -> None:
    before, after = workspace(tmp_path / "a", "softmax", version), patched(tmp_path / "b", "softmax/001-rename", version)
    assert compiled(before) == compiled(after) == ""
    assert code_hash(before / "kernel.so") == code_hash(after / "kernel.so")


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*/baselines/*.c")), ids=lambda p: f"{p.parents[1].name}/{p.name}")
def test_c_baselines_are_right(tmp_path: Path, path: Path) -> None:
    folder = workspace(tmp_path, path.parents[1].name)
    assert compiled(folder, f"baselines/{path.name}", "-Wall") == ""
    assert mistakes(folder) == []


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*/baselines/*.py")), ids=lambda p: f"{p.parents[1].name}/{p.name}")
def test_python_baselines_are_right(tmp_path: Path, path: Path) -> None:
    folder = workspace(tmp_path, path.parents[1].name)
    baseline = module_at(folder / "baselines" / path.name)
    assert mistakes(folder, lambda task, case, arrays: baseline.kernel(*arrays.values())) == []


def test_titles_and_names() -> None:
    for task in TASKS:
        entries = sorted(p.name for p in (EXAMPLES / task / "deck").iterdir())
        assert [e[:4] for e in entries] == [f"{i:03}-" for i in range(1, len(entries) + 1)]
        for patch in patches(task):
            title = patch.read_text().splitlines()[0]
            assert title
            assert not title.startswith(("diff", "---"))
