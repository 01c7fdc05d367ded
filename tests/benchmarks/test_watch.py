"""What is left behind is seen: files, processes, memory, shared memory, and the judge's own state."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.benchmarks.scripts import script


@pytest.fixture(scope="module")
def watch() -> ModuleType:
    return script("watch")


@pytest.fixture
def looking(watch: ModuleType, tmp_path: Path) -> Any:
    """A watch over two folders; memory and processes of others do not count."""
    (tmp_path / "own" / "builds").mkdir(parents=True)
    (tmp_path / "outside" / "deep").mkdir(parents=True)
    return watch.Watch(tmp_path / "own", (tmp_path / "outside",), shared=True)


def test_nothing_is_nothing(looking: Any) -> None:
    assert looking.left() == ()
    assert looking.left() == ()


def test_a_file_in_the_judges_folder(looking: Any, tmp_path: Path) -> None:
    (tmp_path / "own" / "builds" / "a.so").touch()
    (tmp_path / "own" / "left").mkdir()
    assert looking.left() == ("file left in the judge's folder",)
    assert looking.left() == (), "said once"


def test_new_names_outside(watch: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "own").mkdir()
    files = watch.Files((tmp_path,), tmp_path / "own")
    assert files.fresh() == []
    (tmp_path / "deep" / "new").mkdir()
    (tmp_path / "deep" / "new" / "file").touch()
    (tmp_path / "own" / "file").touch()
    assert files.fresh() == [str(tmp_path / "deep" / "new"), str(tmp_path / "deep" / "new" / "file")]
    (tmp_path / "deep" / "new" / "more").touch()
    assert files.fresh() == [str(tmp_path / "deep" / "new" / "more")]


def test_a_child_and_an_orphan(looking: Any) -> None:
    code = "import os, time\nif os.fork(): time.sleep(60)\ntime.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], start_new_session=True) as child:
        try:
            end = time.monotonic() + 20
            while len(found := looking.left()) < 2 and time.monotonic() < end:
                time.sleep(0.02)
        finally:
            os.killpg(child.pid, signal.SIGKILL)
    assert [word for word in found if word.startswith("process ")] == list(found)
    assert len(found) == 2


def test_what_others_start_is_theirs(watch: ModuleType, looking: Any) -> None:
    other = watch.Process(999_999_1, 5, 999_999_2, 0, False, "cron job")
    parent = watch.Process(999_999_2, 4, 1, 0, False, "cron")
    alive = {p.pid: p for p in (other, parent)}
    looking.processes.add((parent.pid, parent.began))
    assert not looking._ours(other, alive)
    looking.processes.discard((parent.pid, parent.began))
    assert looking._ours(watch.Process(7, 5, 1, 60001, False, ""), {1: watch.Process(1, 0, 0, 0, False, "init")})


def test_shared_memory_that_stays(looking: Any) -> None:
    libc = ctypes.CDLL(None)
    made = libc.shmget(0, 4096, 0o1600)  # IPC_PRIVATE, IPC_CREAT
    try:
        assert [word.split(":")[0] for word in looking.left()] == ["System V objects"]
    finally:
        libc.shmctl(made, 0, None)
    assert looking.left() == ()


def test_memory_that_stays(watch: ModuleType, looking: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "WAIT_S", 0.0)
    kept = os.memfd_create("kept")
    try:
        os.posix_fallocate(kept, 0, 200 << 20)
        assert any(word.startswith("memory: ") for word in looking.left())
    finally:
        os.close(kept)


def test_the_judges_own_state(looking: Any) -> None:
    kept = os.open("/dev/null", os.O_RDONLY)
    try:
        assert any(word.startswith("the judge's own state") for word in looking.left())
    finally:
        os.close(kept)
    assert looking.left() == ()
