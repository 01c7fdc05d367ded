"""Disks that are full and folders that cannot be written: a sentence, and what was there stays."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from keepfast.errors import LedgerError
from keepfast.ledger import Ledger
from keepfast.testing import keep
from tests.ledger.test_ledger import experiment, run


def fill(ledger: Ledger) -> int:
    """Append until it fails, with the right words; how many were appended."""
    done: list[int] = []
    with pytest.raises(LedgerError, match=r"disk is full .*what was written before is safe(.|\n)*free some space"):
        append_all(ledger, done)
    return len(done)


def append_all(ledger: Ledger, done: list[int]) -> None:
    for n in range(1, 4000):
        ledger.append("r-1", experiment(n, keep(1.1)))
        done.append(n)


def intact(ledger: Ledger, count: int) -> None:
    assert [e.n for e in ledger.experiments("r-1", rounds=True)] == list(range(1, count + 1))
    assert ledger.broken("r-1") is None
    assert ledger._store.one("PRAGMA integrity_check")[0] == "ok"


def test_a_database_that_may_not_grow(tmp_path: Path) -> None:
    with Ledger.open(tmp_path) as ledger:
        ledger.start(run("r-1"))
        ledger._store.one("PRAGMA max_page_count = 200")
        count = fill(ledger)
        assert count > 2
        intact(ledger, count)
        ledger._store.one("PRAGMA max_page_count = 100000")
        ledger.append("r-1", experiment(count + 1, keep(1.1)))
    with Ledger.open(tmp_path) as again:
        intact(again, count + 1)


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a tiny tmpfs needs root")
    folder = tmp_path / "tiny"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"this container may not mount: {done.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_file_system(tiny: Path) -> None:
    with Ledger.open(tiny) as ledger:
        ledger.start(run("r-1"))
        ballast = tiny / "ballast"
        ballast.write_bytes(bytes(1_200_000))
        count = fill(ledger)
        intact(ledger, count)
        with pytest.raises(LedgerError, match="disk is full"):
            ledger.put_artifact(os.urandom(2_000_000))
        assert not list((tiny / "artifacts").iterdir())
        ballast.unlink()
        ledger.append("r-1", experiment(count + 1, keep(1.1)))
    with Ledger.open(tiny) as again:
        intact(again, count + 1)


def test_a_file_system_that_turns_read_only(tiny: Path) -> None:
    with Ledger.open(tiny) as ledger:
        ledger.start(run("r-1"))
        ledger.append("r-1", experiment(1, keep(1.1)))
    subprocess.run(["mount", "-o", "remount,ro", str(tiny)], check=True)
    with Ledger.open(tiny, readonly=True) as reader:
        assert len(reader.experiments("r-1")) == 1
        assert reader.holder() is None
    with pytest.raises(LedgerError, match="cannot be written: read-only, or not yours"), Ledger.open(tiny) as ledger:
        ledger.append("r-1", experiment(2, keep(1.1)))
    with pytest.raises(LedgerError, match="cannot be written"), Ledger.open(tiny / "new"):
        pass


def test_a_folder_without_rights(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere; the read-only file system is the same case")
    with Ledger.open(tmp_path / "mine") as ledger:
        ledger.start(run("r-1"))
    (tmp_path / "mine").chmod(0o500)
    try:
        with Ledger.open(tmp_path / "mine", readonly=True) as reader:
            assert [r.id for r in reader.runs()] == ["r-1"]
        with pytest.raises(LedgerError, match="cannot be written"), Ledger.open(tmp_path / "mine") as ledger:
            ledger.end("r-1", "goal")
    finally:
        (tmp_path / "mine").chmod(0o700)
