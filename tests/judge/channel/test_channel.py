"""Honest and broken candidates at the judge's end of the channel, with this machine's walls and with none."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from keepfast import wire
from keepfast.errors import MachineError
from keepfast.judge.channel import Call, Failure, Runner, RunnerSpec, c_runner
from keepfast.model import Reason
from keepfast.walls.base import Walls

from .kit import DOUBLE, SHORT_S, SIZE, SLOW_S, BareWalls, Memory, candidate, compiled, fails

# ---- what goes well


def test_calls_are_made_and_timed(walls: object, folder: Path) -> None:
    with candidate(walls, DOUBLE, folder) as rig:
        assert rig.runner.load(SLOW_S) is None
        done = rig.runner.call(0, 3, SLOW_S)
        assert isinstance(done, Call)
        assert done.cpu_ns > 0
        assert 1000 < done.ns < SLOW_S * 1e9
        assert (rig.y.floats[:1000] == 2 * rig.x.floats[:1000]).all()
        assert (rig.y.floats[1000:] == 0).all()


def test_time_contains_the_work(walls: object, folder: Path) -> None:
    with candidate(walls, "CALL { busy(0.02); return 0; }", folder) as rig:
        rig.runner.load(SLOW_S)
        done = rig.runner.call(0, 2, SLOW_S)
        assert isinstance(done, Call)
        assert done.ns > 40e6
        assert done.cpu_ns > 1e6


def test_new_contents_are_seen_and_a_runner_may_be_called_often(walls: object, folder: Path) -> None:
    with candidate(walls, DOUBLE, folder) as rig:
        rig.runner.load(SLOW_S)
        for value in range(20):
            rig.x.floats[:] = value
            assert isinstance(rig.runner.call(value % 3, 1, SLOW_S), Call)
            assert (rig.y.floats[:1000] == 2 * value).all()


def test_stopped_whenever_nothing_was_asked(walls: object, folder: Path) -> None:
    with candidate(walls, DOUBLE, folder) as rig:
        assert rig.state() == "T"
        rig.runner.load(SLOW_S)
        assert rig.state() == "T"
        rig.runner.call(0, 1, SLOW_S)
        assert rig.state() == "T"
        assert isinstance(rig.runner.settle(0.01), Call)
        assert rig.state() == "T"
    assert not rig.alive()


def test_buffers_may_be_added_and_the_table_changed_after_loading(walls: object, folder: Path) -> None:
    with candidate(walls, DOUBLE, folder) as rig:
        rig.runner.load(SLOW_S)
        more = Memory(writable=True)
        index = rig.runner.map(more.fd, SIZE, True)
        fd = wire.table([1, index + 1, 0, 0], [[400, 800, 10, None], [0, 4, 1, None]])
        rig.runner.table(fd)
        os.close(fd)
        assert isinstance(rig.runner.call(0, 1, SLOW_S), Call)
        assert more.floats[200:210].tolist() == [2.0 * i for i in range(100, 110)]
        assert more.floats[1] == 0
        with pytest.raises(ValueError, match="of 2"):
            rig.runner.call(1, 2, SLOW_S)


def test_null_and_raw_words(walls: object, folder: Path) -> None:
    body = "CALL { double d; memcpy(&d, w + 2, 8); return w[0] == 0 && d == -1.5 && w[3] == 0 && (int64_t)w[4] == -7 ? 0 : 9; }"
    with candidate(walls, body, folder) as rig:
        fd = wire.table([1, 2, 0, 0, 0], [[None, 0, -1.5, None, -7]])
        rig.runner.table(fd)
        os.close(fd)
        rig.runner.load(SLOW_S)
        assert isinstance(rig.runner.call(0, 1, SLOW_S), Call)


def test_work_after_the_return_waits_for_settle(bare: BareWalls, folder: Path) -> None:
    late = """#include <pthread.h>
    static float *out;
    static void *later(void *p) { struct timespec t = {0, 5000000}; nanosleep(&t, 0); out[0] = 7; return 0; }
    CALL { pthread_t t; out = Y; out[0] = 1; pthread_create(&t, 0, later, 0); return 0; }"""
    with candidate(bare, late, folder, threads=2) as rig:
        rig.runner.load(SLOW_S)
        done = rig.runner.call(0, 1, SLOW_S)
        assert isinstance(done, Call)
        seen = float(rig.y.floats[0])
        assert isinstance(rig.runner.settle(1.0), Call)
        assert seen == 1 or done.ns > 5e6  # a machine so busy that it was late enough inside the window
        assert rig.y.floats[0] == 7


# ---- what goes wrong by itself


DEEP = "static int f(volatile int *p) { volatile int a[999]; *a = *p; return f(a) + *a; } CALL { volatile int a = 1; return f(&a); }"
CRASHES = [
    ("CALL { ((float *)w[0])[3] = 1; return 0; }", "wrote to a read-only argument (byte 12 of x)"),
    ("CALL { for (long i = 0; ; i++) Y[i] = 1; }", "touched memory 0 bytes past the end of y"),
    ("CALL { return (int)((volatile const float *)X)[-5] & 0; }", "touched memory 20 bytes before the start of x"),
    ("CALL { *(volatile int *)0 = 1; return 0; }", "null pointer"),
    (DEEP, "ran out of stack"),
    ("CALL { volatile int zero = 0; return 100 / zero; }", "SIGFPE: divided an integer by zero"),
    ("CALL { __builtin_trap(); }", "SIGILL"),
    ("CALL { abort(); }", "SIGABRT"),
    ("CALL { write(2, \"first\\nout of luck\\n\", 18); abort(); }", "its last words: out of luck"),
    ("CALL { exit(0); }", "exited (code 0)"),
    ("CALL { _exit(3); }", "exited (code 3)"),
    ("CALL { syscall(231, 5); }", "exited (code 5)"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "said"), CRASHES, ids=[said.split(":")[0].replace(" ", "-") for _, said in CRASHES])
def test_crash(walls: object, folder: Path, body: str, said: str) -> None:
    if "231" in body and os.uname().machine != "x86_64":
        pytest.skip("the number of exit_group is that of x86_64")
    found = fails(walls, body, folder)
    assert found.reason is Reason.CRASH
    assert said in found.detail


def test_hang_while_computing(walls: object, folder: Path) -> None:
    found = fails(walls, "CALL { for (;;) busy(1); }", folder, timeout_s=SHORT_S)
    assert found.reason is Reason.HANG
    assert "within 0.3 s" in found.detail


def test_hang_while_waiting(walls: object, folder: Path) -> None:
    found = fails(walls, "CALL { for (;;) pause(); }", folder, timeout_s=SHORT_S)
    assert found.reason is Reason.HANG
    assert "it was waiting" in found.detail


def test_return_code(walls: object, folder: Path) -> None:
    assert fails(walls, "CALL { return -7; }", folder) == Failure(Reason.RETURN_CODE, "returned -7")


def test_first_nonzero_return_ends_the_calls(walls: object, folder: Path) -> None:
    with candidate(walls, "static int n; CALL { Y[0] = ++n; return n == 2 ? 5 : 0; }", folder) as rig:
        rig.runner.load(SLOW_S)
        assert rig.runner.call(0, 3, SLOW_S) == Failure(Reason.RETURN_CODE, "returned 5")
        assert rig.y.floats[0] == 2


def test_load_failures(walls: object, folder: Path) -> None:
    missing = fails(walls, "int nothing(void); CALL { return nothing(); }", folder)
    assert missing.reason is Reason.LOAD
    assert "undefined symbol: nothing" in missing.detail
    assert str(folder) not in missing.detail
    without = fails(walls, "int other(void) { return 0; }", folder)
    assert without.reason is Reason.LOAD
    assert "keepfast_call" in without.detail


def test_not_a_library(walls: Walls, folder: Path) -> None:
    path = folder / "text.so"
    path.write_text("no library")
    with Runner.start(walls, c_runner(str(path))) as runner:
        found = runner.load(SLOW_S)
        assert found is not None
        assert found.reason is Reason.LOAD


def test_constructor_runs_in_load(walls: object, folder: Path) -> None:
    hang = "__attribute__((constructor)) static void c(void) { for (;;) pause(); } " + DOUBLE
    with candidate(walls, hang, folder) as rig:
        found = rig.runner.load(SHORT_S)
        assert found is not None
        assert found.reason is Reason.HANG
    crash = "static int *volatile p; __attribute__((constructor)) static void c(void) { *p = 1; } " + DOUBLE
    assert fails(walls, crash, folder).reason is Reason.CRASH


def test_killed_from_outside(walls: object, folder: Path) -> None:
    with candidate(walls, DOUBLE, folder) as rig:
        rig.runner.load(SLOW_S)
        os.kill(rig.pid, signal.SIGKILL)
        found = rig.runner.call(0, 1, SLOW_S)
        assert isinstance(found, Failure)
        assert found.reason is Reason.LIMITS
        assert "memory ran out" in found.detail


# ---- what is ours


def test_a_program_that_says_nothing_is_our_failure(walls: Walls, folder: Path) -> None:
    with pytest.raises(MachineError, match="did not start"):
        Runner.start(walls, RunnerSpec(("/bin/true",), compiled(DOUBLE, folder)))


def test_buffers_that_do_not_fit(folder: Path) -> None:
    walls = Walls.detect()
    spec = c_runner(compiled(DOUBLE, folder), memory_bytes=64 << 20)
    large = Memory(writable=True, size=100 << 20)
    with Runner.start(walls, spec) as runner, pytest.raises(MachineError, match="Cannot allocate memory"):
        runner.map(large.fd, large.size, True)
    large.close()


def test_only_sealed_memory_is_handed_over(walls: Walls, folder: Path) -> None:
    open_to_writes = Memory(writable=True)
    with Runner.start(walls, c_runner(compiled(DOUBLE, folder))) as runner:
        with pytest.raises(wire.WireError, match="not sealed"):
            runner.map(open_to_writes.fd, SIZE, False)
        with pytest.raises(wire.WireError, match="not shared memory of"):
            runner.map(open_to_writes.fd, SIZE * 2, True)


def test_nothing_is_left(walls: Walls, folder: Path) -> None:
    fds, threads = len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
    with Runner.start(walls, c_runner(compiled(DOUBLE, folder))) as runner:
        runner.load(SLOW_S)
        pid = runner._walled.pid
    assert not Path(f"/proc/{pid}").exists()
    runner.close()
    assert len(os.listdir("/proc/self/fd")) == fds
    assert len(os.listdir("/proc/self/task")) == threads
