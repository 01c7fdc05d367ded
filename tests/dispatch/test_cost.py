"""The benchmark of dispatch, on a handful of calls: everything goes to the kernel, and a batch is what it says."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "dispatch_cost.py"


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_a_short_run(tmp_path: Path) -> None:
    argv = (sys.executable, str(SCRIPT), "--calls", "20", "--batches", "3", "--out", str(tmp_path / "found.json"))
    done = subprocess.run(
        argv, env=os.environ | {"XDG_CACHE_HOME": str(tmp_path)}, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    costs = json.loads((tmp_path / "found.json").read_text())["costs"]
    assert [(c["tensors"], c["calls"], c["batches"]) for c in costs] == [(1, 20, 3), (1, 20, 3), (3, 20, 3), (3, 20, 3)]
    assert all(c["median_ns"] >= c["least_ns"] for c in costs)
    assert costs[1]["median_ns"] > costs[0]["least_ns"]  # torch's dispatcher comes on top
