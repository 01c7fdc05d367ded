"""Artifacts are stored once, whole or not at all, and dropped when nothing names them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from keepfast import model
from keepfast.errors import UsageError
from keepfast.ledger import Ledger
from keepfast.testing import reject
from tests.ledger.test_ledger import experiment, run


def test_put_and_get(tmp_path: Path) -> None:
    with Ledger.open(tmp_path) as ledger:
        name = ledger.put_artifact(b"a log")
        assert ledger.put_artifact(b"a log") == name
        assert ledger.artifact(name) == b"a log"
        assert [p.name for p in (tmp_path / "artifacts").iterdir()] == [name]


@pytest.mark.parametrize("name", ["0" * 64, "../ledger.db", ""])
def test_an_unknown_artifact(tmp_path: Path, name: str) -> None:
    with Ledger.open(tmp_path) as ledger, pytest.raises(UsageError, match="no artifact"):
        ledger.artifact(name)


def test_an_artifact_that_was_changed_on_the_disk(tmp_path: Path) -> None:
    with Ledger.open(tmp_path) as ledger:
        name = ledger.put_artifact(b"a log")
        (tmp_path / "artifacts" / name).write_bytes(b"a lie")
        with pytest.raises(UsageError, match="is not what was stored under that name"):
            ledger.artifact(name)


def test_gc_drops_what_nothing_names(tmp_path: Path) -> None:
    with Ledger.open(tmp_path) as ledger:
        ledger.start(run("r-1"))
        named, old, young = (ledger.put_artifact(data) for data in (b"named", b"old", b"young"))
        rung = model.Rung("guard", False, 0.0, (model.Fact("patch", named),))
        ledger.append("r-1", experiment(1, replace(reject(), rungs=(rung,))))
        for name in (named, old):
            os.utime(tmp_path / "artifacts" / name, (0, time.time() - 90_000))
        dropped = ledger.gc()
        assert (dropped.artifacts, dropped.bytes) == (1, 3)
        assert ledger.artifact(named) == b"named"
        assert ledger.artifact(young) == b"young"  # its record may be on the way
        with pytest.raises(UsageError):
            ledger.artifact(old)


def test_gc_without_artifacts(tmp_path: Path) -> None:
    with Ledger.open(tmp_path) as ledger:
        assert ledger.gc().artifacts == 0
