"""Triton, CuTe DSL and torch: what they claim, that a build reads the grammar only, and extensions of torch."""

from __future__ import annotations

import importlib.machinery
import subprocess
from pathlib import Path

import pytest

from keepfast import native
from keepfast.errors import MachineError
from keepfast.lang import nvcc, python, torch
from keepfast.lang.base import by_name
from keepfast.model import Build, File
from tests.judge.tasks import softmax_task

PYTHON = ("triton", "cute", "torch")


@pytest.mark.parametrize("name", PYTHON)
def test_they_claim_python(name: str) -> None:
    language = by_name(name, "sm_90")
    assert language.name == name
    assert language.claims(("kernel/kernel.py", "kernel/more.py"))
    for paths in (("kernel.cu",), ("kernel.c",), ("kernel.cpp", "kernel.py")):
        assert not language.claims(paths)


def test_only_torch_takes_native_sources() -> None:
    paths = ("kernel.py", "ext.cpp", "ext.cu")
    assert [name for name in PYTHON if by_name(name).claims(paths)] == ["torch"]


@pytest.mark.parametrize("name", ["triton", "cute"])
def test_old_gpus_are_named(name: str) -> None:
    with pytest.raises(MachineError, match="makes no code for sm_75"):
        by_name(name, "sm_75").plan(softmax_task(), (), {})


def checked(folder: Path, **files: str | bytes) -> subprocess.CompletedProcess[str]:
    made = tuple(File(f"{name}.py", text.encode() if isinstance(text, str) else text) for name, text in files.items())
    for file in made:
        (folder / file.path).write_bytes(file.data)
    (step,) = by_name("triton", "sm_90").plan(softmax_task(), (*made, File("tunables.toml", b"")), {})
    assert step.output == ""
    return subprocess.run(step.resolved({"tree": str(folder)}), capture_output=True, text=True, check=False)


def test_a_build_reads_the_grammar(tmp_path: Path) -> None:
    assert checked(tmp_path, kernel="import no_such_module\n", more="x = 1\n").returncode == 0
    assert checked(tmp_path, kernel="x = 1\n\ndef f(:\n").stderr.strip() == "kernel.py:3: error: invalid syntax"
    assert "null bytes" in checked(tmp_path, kernel=b"x = 1\0").stderr
    assert "kernel.py:1: error:" in checked(tmp_path, kernel=b"# coding: no-such\n").stderr


def test_no_python_no_step() -> None:
    assert python.syntax((File("a.toml", b""),)) == ()


@pytest.mark.parametrize(
    ("entry", "packages", "root"),
    [
        ("kernel.py", (), ""),
        ("kernel/kernel.py", (), "kernel"),
        ("src/norms/ops/k.py", ("src/norms", "src/norms/ops"), "src"),
        ("norms/k.py", ("norms",), ""),
        ("src/norms/ops/k.py", ("src/norms",), "src/norms/ops"),
    ],
)
def test_where_imports_begin(entry: str, packages: tuple[str, ...], root: str) -> None:
    assert python.import_root(entry, {f"{p}/__init__.py" for p in packages}) == root


# --------------------------------------------------------------------------------------------- extensions


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A torch folder as an installation has it."""
    folder = tmp_path / "site-packages" / "torch"
    for inner in ("include", "lib", "utils", "share/cmake/Torch"):
        (folder / inner).mkdir(parents=True)
    for name in ("c10", "torch", "torch_cpu", "torch_python", "c10_cuda", "torch_cuda"):
        (folder / "lib" / f"lib{name}.so").touch()
    (folder / "utils" / "cpp_extension.py").write_text("flags = ['-std=c++17']\n")
    spec = importlib.machinery.ModuleSpec("torch", None, origin=str(folder / "__init__.py"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: spec if name == "torch" else None)
    return folder


def extension(*sources: str, flags: tuple[str, ...] = ("-O2",)) -> tuple[str, ...]:
    task = softmax_task(entry_path="kernel/kernel.py", build=Build(flags=flags, sources=sources, include=("inc",)))
    *_, step = torch.Torch("sm_90").plan(task, (File("kernel/kernel.py", b""),), {})
    return step.argv


def test_a_cpp_extension_is_compiled_by_gcc(installed: Path) -> None:
    words = extension("kernel/ext.cpp", "kernel/helper.py")
    assert words[0] == str(native.cpp_compiler())
    assert {"-std=c++17", f"-DTORCH_EXTENSION_NAME={torch.EXTENSION}", f"-I{installed}/include", f"-L{installed}/lib"} <= set(words)
    assert {"-ltorch", "-ltorch_cpu", "-lc10", "-ltorch_python", "-ltorch_cuda", "-lc10_cuda"} <= set(words)
    assert [w for w in words if w.startswith("{tree}/")] == ["{tree}/kernel/ext.cpp"]


def test_the_humans_standard_counts(installed: Path) -> None:
    words = extension("kernel/ext.cpp", flags=("-std=c++20",))
    assert [w for w in words if w.startswith("-std=")] == ["-std=c++20"]


def test_an_old_library_is_known_by_its_own_files(installed: Path) -> None:
    (installed / "share/cmake/Torch/TorchConfig.cmake").write_text('set(TORCH_CXX_FLAGS "-D_GLIBCXX_USE_CXX11_ABI=0")\n')
    assert "-D_GLIBCXX_USE_CXX11_ABI=0" in extension("kernel/ext.cpp")


def test_a_cuda_extension_is_compiled_by_nvcc(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvcc, "toolkit", lambda arch: nvcc.Toolkit(Path("/cuda/bin/nvcc"), Path("/cuda")))
    words = extension("kernel/ext.cu", "kernel/bind.cpp")
    assert words[0] == "/cuda/bin/nvcc"
    assert {"-gencode=arch=compute_90a,code=sm_90a", "--expt-relaxed-constexpr", f"-I{installed}/include"} <= set(words)


def test_without_torch_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MachineError, match="torch is not installed"):
        extension("kernel/ext.cpp")


def test_pure_python_needs_no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (step,) = torch.Torch().plan(softmax_task(entry_path="kernel/kernel.py"), (File("kernel/kernel.py", b""),), {})
    assert step.output == ""
