"""One run at a time, and who it is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from keepfast.errors import UsageError
from keepfast.ledger import Ledger

HOLD = """
import sys
from pathlib import Path
from keepfast.ledger import Ledger
with Ledger.open(Path(sys.argv[1])) as ledger, ledger.hold("other-1"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_holding_and_letting_go(tmp_path: Path) -> None:
    with Ledger.open(tmp_path) as ledger, Ledger.open(tmp_path, readonly=True) as watcher:
        assert watcher.holder() is None
        with ledger.hold("r-1"):
            holder = watcher.holder()
            assert holder is not None
            assert (holder.run, holder.pid) == ("r-1", os.getpid())
            with (
                pytest.raises(UsageError, match=rf"another run holds this ledger \(pid {os.getpid()}, started \d\d:\d\d\)"),
                ledger.hold("r-2"),
            ):
                pass
        assert watcher.holder() is None


def test_another_process_and_its_death(tmp_path: Path) -> None:
    env = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    argv = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as process, Ledger.open(tmp_path) as ledger:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        holder = ledger.holder()
        assert holder is not None
        assert (holder.run, holder.pid) == ("other-1", process.pid)
        with pytest.raises(UsageError, match=f"pid {process.pid}"), ledger.hold("r-1"):
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert ledger.holder() is None  # its name is still in the file, but the kernel has let go
        with ledger.hold("r-1"):
            pass


def test_looking_does_not_disturb_the_one_who_takes(tmp_path: Path) -> None:
    with Ledger.open(tmp_path) as ledger:
        assert ledger.holder() is None
        with ledger.hold("r-1"):
            pass
        assert ledger.holder() is None
