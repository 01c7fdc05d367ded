"""Two holders of one core wait for each other; other cores are free; a dead holder holds nothing."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from keepfast.device import lease

HOLD = """
import sys, time
from pathlib import Path
from keepfast.device import lease
with lease.held((int(sys.argv[1]),), Path(sys.argv[2])):
    print("held", flush=True)
    time.sleep(float(sys.argv[3]))
"""


def holder(core: int, folder: Path, seconds: float) -> subprocess.Popen[str]:
    child = subprocess.Popen([sys.executable, "-c", HOLD, str(core), str(folder), str(seconds)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    return child


def test_a_core_is_waited_for(tmp_path: Path) -> None:
    with holder(1, tmp_path, 0.3) as child:
        began = time.monotonic()
        with lease.held((0,), tmp_path):
            assert time.monotonic() - began < 0.2
        with lease.held((0, 1), tmp_path):
            assert time.monotonic() - began > 0.15
        child.wait(5)


def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    with holder(3, tmp_path, 60.0) as child:
        child.kill()
        with lease.held((3,), tmp_path):
            pass


def test_without_a_place_for_the_lock_there_is_no_lease(tmp_path: Path) -> None:
    with lease.held((0,), tmp_path / "missing"):
        pass
    (tmp_path / "keepfast-core-5.lock").symlink_to(tmp_path / "elsewhere")
    with lease.held((5,), tmp_path):
        assert not (tmp_path / "elsewhere").exists()
