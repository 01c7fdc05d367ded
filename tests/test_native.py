"""Our own C files: compiled once, found again, never by half."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from keepfast import native
from keepfast.errors import MachineError


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path / "cache" / "keepfast"


def test_a_program_is_compiled_once(cache: Path) -> None:
    first = native.program("enter")
    assert first.is_relative_to(cache)
    made = first.stat().st_mtime_ns
    assert native.program("enter") == first
    assert first.stat().st_mtime_ns == made
    assert subprocess.run([str(first), "--probe"], check=True, capture_output=True).stdout.startswith(b"landlock ")


def test_a_changed_source_is_another_entry(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one.c").write_text('#include "one.h"\nint main(void) { return N; }\n')
    (tmp_path / "one.h").write_text("#define N 1\n")
    monkeypatch.setattr(native, "PACKAGE", tmp_path)
    monkeypatch.setattr(native, "PROGRAMS", {"one": native.Source(("one.c",), ("one.h",))})
    first = native.program("one")
    assert subprocess.run([str(first)], check=False).returncode == 1
    (tmp_path / "one.h").write_text("#define N 2\n")
    assert native.program("one") != first
    assert subprocess.run([str(native.program("one"))], check=False).returncode == 2


def test_a_source_that_does_not_compile_says_why(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one.c").write_text("#include <no/such/header.h>\n")
    monkeypatch.setattr(native, "PACKAGE", tmp_path)
    monkeypatch.setattr(native, "PROGRAMS", {"one": native.Source(("one.c",))})
    with pytest.raises(MachineError, match=r"one\.c.*no/such/header\.h"):
        native.program("one")
    assert list(cache.glob("*/*")) == [], "nothing half made is left"


def test_many_processes_may_ask_at_once(cache: Path) -> None:
    ask = [sys.executable, "-c", "from keepfast import native; print(native.program('enter'))"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    running = [subprocess.Popen(ask, env=env, stdout=subprocess.PIPE) for _ in range(4)]
    answers = {process.communicate()[0] for process in running}
    assert len(answers) == 1
    assert len(list(cache.glob("*/*"))) == 1


@pytest.mark.parametrize("how", ["a file", "read-only", "another's"])
def test_a_cache_that_cannot_be_used_is_not(cache: Path, tmp_path: Path, how: str) -> None:
    if how == "a file":
        cache.parent.mkdir()
        cache.write_text("")
    elif how == "read-only":
        if os.getuid() == 0:
            pytest.skip("root may write everywhere")
        cache.mkdir(parents=True, mode=0o500)
    else:
        key = native.program("enter").parent
        key.chmod(0o777)
        (key / "enter").write_text("#!/bin/sh\nexit 1\n")
    found = native.program("enter")
    assert not found.is_relative_to(cache)
    assert subprocess.run([str(found), "--probe"], check=True, capture_output=True).stdout.startswith(b"landlock ")
    assert not found.parent.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def test_wrappers_of_compilers_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = native.compiler()
    (tmp_path / "ccache").write_text("")
    (tmp_path / "ccache").chmod(0o755)
    (tmp_path / "gcc").symlink_to("ccache")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert native.compiler() == real


def test_without_a_compiler_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match="apt install gcc"):
        native.compiler()
