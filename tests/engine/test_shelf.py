"""An interrupted proof goes on with the cell it was at; nothing that differs is taken for it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from msgspec import Struct
from msgspec.structs import replace

from keepfast.engine import shelf
from keepfast.engine.base import STOCK, Cell
from keepfast.engine.shelf import HOURS, Shelf
from keepfast.engine.transformers import Arm, Fill, Plan, _same


class Item(Struct, frozen=True):
    n: int


VERSIONS = (("torch", "2"), ("machine", "card"))


def test_what_was_put_is_found_with_its_age(tmp_path: Path):
    Shelf(tmp_path / "plan", VERSIONS).put("decode 24 x 2", Item(3))
    found = Shelf(tmp_path / "plan", VERSIONS).find("decode 24 x 2", Item)
    assert found is not None
    assert found[0] == Item(3)
    assert 0 <= found[1] < 60


def test_nothing_is_found_of_other_versions_or_cells_or_after_hours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    kept = Shelf(tmp_path, VERSIONS)
    kept.put("a", Item(3))
    assert Shelf(tmp_path, (("torch", "3"),)).find("a", Item) is None
    assert kept.find("b", Item) is None
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + HOURS * 3600 + 60)
    assert kept.find("a", Item) is None


def test_what_cannot_be_read_or_written_is_no_shelf(tmp_path: Path):
    nowhere = Shelf(None, VERSIONS)
    nowhere.put("a", Item(1))
    assert nowhere.find("a", Item) is None
    (tmp_path / "file").write_text("")
    blocked = Shelf(tmp_path / "file" / "plan", VERSIONS)
    blocked.put("a", Item(1))
    assert blocked.find("a", Item) is None
    kept = Shelf(tmp_path, VERSIONS)
    kept.put("a", Item(1))
    next(tmp_path.glob("*.json")).write_text("{")
    assert kept.find("a", Item) is None


def test_folders_that_nobody_came_back_to_are_deleted(tmp_path: Path):
    for name, hours in (("old", HOURS + 1), ("new", HOURS - 1)):
        (tmp_path / name).mkdir()
        then = time.time() - hours * 3600
        os.utime(tmp_path / name, (then, then))
    shelf.swept(tmp_path)
    shelf.swept(tmp_path / "none")
    assert [p.name for p in tmp_path.iterdir()] == ["new"]


def laid(folder: Path, text: str) -> Fill:
    folder.mkdir(parents=True)
    (folder / "kernel.py").write_text(text)
    return Fill("rms_norm", str(folder / "kernel.py"), "kernel", "rms_norm(Tensor x)", "mine", path=(str(folder),))


def test_plans_are_the_same_when_their_kernels_are_wherever_they_lie(tmp_path: Path):
    def plan(fill: Fill, **more: object) -> Plan:
        return Plan(**({"model": "tiny", "cells": (Cell("decode", 24, 2),), "arms": (Arm(STOCK), Arm("kept", (fill,)))} | more))  # type: ignore[arg-type]

    one, other, third = (laid(tmp_path / n, text) for n, text in (("a", "x = 1"), ("b", "x = 1"), ("c", "x = 2")))
    assert _same(plan(one)) == _same(plan(other)) == _same(plan(one, cells=(Cell("prefill", 16, 1),)))
    differing = [plan(third), plan(one, rounds=9), plan(one, seed=2), plan(replace(one, only="*")), plan(one, model="small")]
    assert len({_same(p) for p in (plan(one), *differing)}) == 6
