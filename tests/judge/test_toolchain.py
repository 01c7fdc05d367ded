"""What a worker in this interpreter may read: packages and toolkits, never a repository."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from keepfast import native
from keepfast.judge import toolchain
from keepfast.walls import paths

REPOSITORY = native.PACKAGE.parent.parent


def opened() -> tuple[str, ...]:
    return paths.opened(toolchain.python_folders()).read


def covered(path: str | Path) -> bool:
    real = os.path.realpath(path)
    return any(real == folder or real.startswith(folder + "/") for folder in opened())


def package(folder: Path, name: str) -> Path:
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").touch()
    return folder / name


def test_the_interpreter_its_library_and_the_package_are_in() -> None:
    import msgspec

    for path in (sys.executable, os.__file__, msgspec.__file__, str(native.PACKAGE / "wire.py"), "/etc/ld.so.cache"):
        assert not os.path.exists(path) or covered(path), path
    assert all(os.path.isabs(path) for path in toolchain.python_folders())


def test_the_repository_is_not() -> None:
    if "-packages" in str(REPOSITORY):
        pytest.skip("keepfast is installed, not run from its source tree")
    assert covered(REPOSITORY / "src" / "keepfast")
    for name in ("tests", "AGENTS.md", ".git", "pyproject.toml", "src", "examples"):
        assert not covered(REPOSITORY / name), name
    assert not any(str(REPOSITORY).startswith(folder) for folder in opened()), "nor a folder around it"


def test_a_folder_that_packages_were_installed_into_is_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, site = tmp_path / "target", tmp_path / "lib" / "site-packages"
    for folder in (target, site):
        package(folder, "anything")
    (target / "anything-1.0.dist-info").mkdir()
    monkeypatch.setattr(sys, "path", [str(target), str(site), *sys.path])
    assert covered(target)
    assert covered(site)
    given = dict(toolchain.python_environment())["PYTHONPATH"].split(":")
    assert given[:2] == [str(target), str(site)]


def test_of_a_source_tree_only_the_package_is_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = tmp_path / "repository" / "python"
    package(tree, "triton")
    (tree / "reference.py").write_text("answers")
    (tree / "cuda").mkdir()  # no package: a folder that happens to be called so
    monkeypatch.setattr(sys, "path", [str(tree), *(path for path in sys.path if not (Path(path) / "triton").exists())])
    assert covered(tree / "triton")
    assert not covered(tree)
    assert not covered(tree / "reference.py")
    assert not covered(tree / "cuda")
    assert str(tree) in dict(toolchain.python_environment())["PYTHONPATH"].split(":")


def test_a_repository_with_packages_installed_into_it_is_still_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "some-1.0.dist-info").mkdir()
    (tmp_path / ".git").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert not covered(tmp_path)


def test_where_the_judge_was_started_is_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(tmp_path, "torch")
    (tmp_path / "torch-1.0.dist-info").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), *sys.path])
    assert not covered(tmp_path / "torch")
    assert str(tmp_path) not in dict(toolchain.python_environment())["PYTHONPATH"].split(":")


def test_of_a_virtual_environment_in_a_project_only_what_is_pythons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for name in ("bin", f"lib/{version}", "lib/mine", "include/mine", "src"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "pyvenv.cfg").touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert all(covered(tmp_path / name) for name in ("bin", "pyvenv.cfg", f"lib/{version}"))
    assert not any(covered(tmp_path / name) for name in ("lib/mine", "include/mine", "src"))


def test_the_environment_finds_tools_and_names_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "cuda" / "bin").mkdir(parents=True)
    (tmp_path / "nvidia" / "lib64").mkdir(parents=True)
    (tmp_path / "nvidia" / "lib64" / "libcuda.so.1").touch()
    monkeypatch.setattr(toolchain, "TOOLKITS", (f"{tmp_path}/cuda*",))
    monkeypatch.setattr(toolchain, "DRIVER_LIBRARIES", (f"{tmp_path}/nvidia/lib64", f"{tmp_path}/absent"))
    env = dict(toolchain.python_environment())
    path = env["PATH"].split(":")
    assert path[0] == os.path.dirname(sys.executable)
    assert f"{tmp_path}/cuda/bin" in path
    assert len(path) == len(set(path))
    assert env["USER"] == env["LOGNAME"] == "keepfast"
    assert env["LD_LIBRARY_PATH"] == f"{tmp_path}/nvidia/lib64"
    assert env["PYTHONSAFEPATH"] == env["PYTHONNOUSERSITE"] == "1"


def test_such_an_interpreter_finds_the_package(tmp_path: Path) -> None:
    env = dict(toolchain.python_environment())
    argv = [sys.executable, "-c", "import keepfast.wire, msgspec, sys; print(keepfast.__file__)"]
    done = subprocess.run(argv, env=env, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert os.path.realpath(done.stdout.strip()) == os.path.realpath(native.PACKAGE / "__init__.py")


def test_a_machine_without_ldconfig(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "LDCONFIG", "/nowhere/ldconfig")
    assert toolchain.python_folders()
