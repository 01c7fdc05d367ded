"""nvcc: where it is found, how it is called, and one sentence for each machine on which it cannot be."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from keepfast import native
from keepfast.errors import MachineError, UsageError
from keepfast.lang import nvcc
from keepfast.lang.base import OUTPUT, Step, by_name
from keepfast.lang.cuda import Cuda
from keepfast.model import Build
from tests.judge.tasks import softmax_task

PLACES = {"tree": "/t", "generated": "/g", "scratch": "/s", "made": "/m"}
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on PATH")


def step(arch: str = "sm_90", **build: tuple[str, ...]) -> Step:
    (found,) = Cuda(arch).plan(softmax_task(entry_path="kernel/kernel.cu", build=Build(**build)), (), {})
    return found


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A toolkit folder whose nvcc says where it lies and compiles everything; gcc is still found."""
    monkeypatch.setattr(nvcc, "USUAL", ())
    monkeypatch.setattr(nvcc, "_packages", lambda: ())
    monkeypatch.setattr("sys.prefix", str(tmp_path / "nowhere"))
    folder = tmp_path / "cuda" / "bin"
    (tmp_path / "cuda" / "include").mkdir(parents=True)
    (tmp_path / "cuda" / "include" / "cuda_runtime.h").touch()
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{native.compiler().parent}")
    return folder


def script(folder: Path, compiles: str = "exit 0") -> Path:
    path = folder / "nvcc"
    path.write_text(f'#!/bin/sh\n[ "$1" = --dryrun ] && {{ echo "#$ TOP={folder}/.." >&2; exit 0; }}\n{compiles}\n')
    path.chmod(0o755)
    return path


def test_it_claims_cuda_with_more_sources() -> None:
    assert Cuda().claims(("kernel.cu",))
    assert Cuda().claims(("kernel.cu", "more.cu", "host.cpp", "plain.c"))
    for paths in (("kernel.c", "more.cu"), ("kernel.py",), ("kernel.cu", "more.py")):
        assert not Cuda().claims(paths)


def test_the_command_line(fake: Path) -> None:
    path = script(fake)
    found = step(flags=("-O3", "-std=c++17"), libs=("-lfoo",), sources=("src/more.cu",), include=("inc",))
    words = found.resolved(PLACES)
    assert words[:3] == (str(path), "-O3", "-std=c++17")
    assert "-gencode=arch=compute_90a,code=sm_90a" in words
    assert {"-shared", "-lineinfo", "-cudart=static", "-Xptxas=-v", "-I/g", "-I/t/inc"} <= set(words)
    assert [w for w in words if w.endswith((".cu", ".cpp"))] == ["/t/kernel/kernel.cu", "/t/src/more.cu", "/g/shim.cpp"]
    assert words[words.index("-o") + 1] == f"/s/{OUTPUT}"
    assert words[-1] == "-lfoo"
    assert "{" not in " ".join(words)
    assert str(fake.parent) in found.read
    assert found.limits == nvcc.LIMITS


def test_the_variant_of_each_chip(fake: Path) -> None:
    script(fake)
    assert "-gencode=arch=compute_100a,code=sm_100a" in step("sm_100").argv
    assert "-gencode=arch=compute_89,code=sm_89" in step("sm_89").argv
    with pytest.raises(UsageError, match="for which GPU"):
        step("")


def test_without_nvcc_it_says_what_to_install(fake: Path) -> None:
    with pytest.raises(MachineError, match=r"no CUDA compiler(.|\n)*apt install(.|\n)*conda install(.|\n)*pip install nvidia-cuda-nvcc"):
        step()


def test_an_nvcc_that_does_not_run(fake: Path) -> None:
    path = fake / "nvcc"
    path.write_text("#!/bin/sh\necho 'cannot find libfoo' >&2; exit 127\n")
    path.chmod(0o755)
    with pytest.raises(MachineError, match="does not work: cannot find libfoo"):
        step()


@pytest.mark.parametrize(
    ("said", "step_words"),
    [
        ("nvcc fatal   : Unsupported gpu architecture 'compute_60'", "A CUDA toolkit that knows sm_60"),
        (
            "/x/crt/host_config.h:138:2: error: #error -- unsupported GNU version! gcc versions later than 12",
            "A gcc that this toolkit knows",
        ),
        ("nvcc fatal   : something else", "apt install"),
    ],
)
def test_what_this_machine_cannot_compile_is_no_candidates_fault(fake: Path, said: str, step_words: str) -> None:
    script(fake, f'echo "{said}" >&2; exit 1')
    with pytest.raises(MachineError) as caught:
        step("sm_60")
    assert "cannot compile for sm_60" in caught.value.what
    assert said[:40] in caught.value.what
    assert step_words in caught.value.next_step


def test_packages_of_pip_keep_headers_elsewhere(fake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cuda" / "include" / "cuda_runtime.h").unlink()
    runtime = tmp_path / "nvidia" / "cuda_runtime"
    (runtime / "include").mkdir(parents=True)
    (runtime / "lib").mkdir()
    (runtime / "lib" / "libcudart_static.a").touch()
    compiler = tmp_path / "nvidia" / "cuda_nvcc"
    (compiler / "bin").mkdir(parents=True)
    monkeypatch.setattr(nvcc, "_packages", lambda: (compiler, runtime))
    path = script(compiler / "bin")
    found = step()
    assert found.argv[0] == str(path)
    assert {f"-I{runtime}/include", f"-L{runtime}/lib"} <= set(found.argv)
    assert {str(compiler), f"{runtime}/include", f"{runtime}/lib"} <= set(found.read)


def test_a_system_folder_is_not_opened_whole() -> None:
    assert nvcc.Toolkit(Path("/usr/bin/nvcc"), Path("/usr")).read == ("/usr/bin/nvcc",)
    assert nvcc.Toolkit(Path("/usr/bin/nvcc"), Path.home()).read == ("/usr/bin/nvcc",)


@needs_nvcc
def test_the_toolkit_of_this_machine() -> None:
    found = nvcc.toolkit("sm_90")
    assert os.access(found.nvcc, os.X_OK)
    assert (found.root / "bin").is_dir()
    assert by_name("cuda", "sm_90").name == "cuda"
    with pytest.raises(MachineError, match="sm_35"):
        nvcc.toolkit("sm_35")
