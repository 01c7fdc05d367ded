"""Two holders of one core wait for each other; other cores are free; a dead holder holds nothing."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from keepfast.device import lease

LONG_S = 60.0
HOLD = """
import sys
from pathlib import Path
from keepfast.device import lease
with lease.{}, Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def holder(what: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds `what` until its input ends."""
    argv = [sys.executable, "-c", HOLD.format(what), str(folder)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        yield child


def waits(child: subprocess.Popen[str], held: Callable[[], AbstractContextManager[None]]) -> None:
    """`held` is not had while the child has it, and is when the child has let go."""
    had = threading.Event()

    def take() -> None:
        with held():
            had.set()

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    assert not had.wait(0.1)
    assert child.stdin is not None
    child.stdin.close()
    assert had.wait(LONG_S)
    thread.join()


def test_a_core_is_waited_for(tmp_path: Path) -> None:
    with holder("held((1,)", tmp_path) as child:
        with lease.held((0,), tmp_path):
            pass
        waits(child, lambda: lease.held((0, 1), tmp_path))


def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    with holder("held((3,)", tmp_path) as child:
        child.kill()
        with lease.held((3,), tmp_path):
            pass


def test_without_a_place_for_the_lock_there_is_no_lease(tmp_path: Path) -> None:
    with lease.held((0,), tmp_path / "missing"):
        pass
    (tmp_path / "keepfast-core-5.lock").symlink_to(tmp_path / "elsewhere")
    with lease.held((5,), tmp_path):
        assert not (tmp_path / "elsewhere").exists()


def test_a_card_is_held_by_its_uuid(tmp_path: Path) -> None:
    with holder("held_card('GPU-1'", tmp_path) as child:
        with lease.held_card("GPU-2", tmp_path):
            pass
        waits(child, lambda: lease.held_card("GPU-1", tmp_path))
