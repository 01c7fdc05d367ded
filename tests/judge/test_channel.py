"""Honest and hostile candidates against the judge's end of the channel, with this machine's walls and with none."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from keepfast import wire
from keepfast.errors import MachineError
from keepfast.judge import channel, leash
from keepfast.judge.channel import Call, Failure, Runner, RunnerSpec, c_runner
from keepfast.model import Reason
from keepfast.walls.base import Walls

from .runner_kit import DOUBLE, SIZE, BareWalls, Memory, candidate, compiled

SLOW_S = 20.0  # for what is expected to come: this machine may be busy
SHORT_S = 0.3  # for what is expected not to come


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("candidates")
    for part in (found, *found.parents[:2]):
        part.chmod(0o755)
    return found


@pytest.fixture(scope="module")
def bare(folder: Path) -> BareWalls:
    return BareWalls(folder)


@pytest.fixture(scope="module", params=["walls", "bare"])
def walls(request: pytest.FixtureRequest, bare: BareWalls) -> Iterator[object]:
    yield Walls.detect() if request.param == "walls" else bare


def fails(walls: object, body: str, folder: Path, *, timeout_s: float = SLOW_S, threads: int = 1) -> Failure:
    """Load and call once; both may be what fails. Whatever happens, the failure stays and no process is left."""
    with candidate(walls, body, folder, threads=threads) as rig:
        found = rig.runner.load(SLOW_S) or rig.runner.call(0, 1, timeout_s)
        if isinstance(found, Call):
            found = rig.runner.still() or rig.runner.call(0, 1, timeout_s)
        assert isinstance(found, Failure), found
        assert rig.runner.call(0, 1, timeout_s) == found
        assert rig.runner.still() == rig.runner.settle(0.01) == found
        assert not rig.alive()
        return found


# ---- what goes well


def test_calls_are_made_and_timed(walls: object, folder: Path) -> None:
    with candidate(walls, DOUBLE, folder) as rig:
        assert rig.runner.load(SLOW_S) is None
        done = rig.runner.call(0, 3, SLOW_S)
        assert isinstance(done, Call)
        assert 0 < done.cpu_ns
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
        assert isinstance(rig.runner.settle(0.2), Call)
        assert seen == 1 or done.ns > 5e6  # a machine so busy that it was late enough inside the window
        assert rig.y.floats[0] == 7


# ---- what goes wrong by itself


CRASHES = [
    ("CALL { ((float *)w[0])[3] = 1; return 0; }", "wrote to a read-only argument (byte 12 of x)"),
    ("CALL { for (long i = 0; ; i++) Y[i] = 1; }", "touched memory 0 bytes past the end of y"),
    ("CALL { return (int)((volatile const float *)X)[-5] & 0; }", "touched memory 20 bytes before the start of x"),
    ("CALL { *(volatile int *)0 = 1; return 0; }", "null pointer"),
    ("static int deep(volatile int *p) { volatile int a[1000]; a[0] = *p; return deep(a) + a[0]; } CALL { volatile int a = 1; return deep(&a); }", "ran out of stack"),
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
    assert fails(walls, "static int *volatile p; __attribute__((constructor)) static void c(void) { *p = 1; } " + DOUBLE, folder).reason is Reason.CRASH


def test_killed_from_outside(walls: object, folder: Path) -> None:
    with candidate(walls, DOUBLE, folder) as rig:
        rig.runner.load(SLOW_S)
        os.kill(rig.pid, signal.SIGKILL)
        found = rig.runner.call(0, 1, SLOW_S)
        assert isinstance(found, Failure)
        assert found.reason is Reason.LIMITS
        assert "memory ran out" in found.detail


# ---- what goes wrong on purpose


HOSTILE = [
    ("closes the channel", "CALL { close(3); for (;;) pause(); }", "closed the judge's channel"),
    ("closes it and returns", "CALL { close(3); return 0; }", ""),
    ("shuts it down", "CALL { shutdown(3, 2); for (;;) pause(); }", "closed the judge's channel"),
    ("garbage", 'CALL { write(3, "garbage", 7); for (;;) pause(); }', "sent 7 bytes that are no answer"),
    ("long garbage", "static char big[100000]; CALL { write(3, big, sizeof big); for (;;) pause(); }", "that are no answer"),
    ("huge length", 'CALL { write(3, "\\xff\\xff\\xff\\xff{", 5); for (;;) pause(); }', "no answer"),
    ("deep", 'CALL { char b[3004]; memset(b, 91, 3004); *(int *)b = 3000; write(3, b, 3004); for (;;) pause(); }', "no answer"),
    ("an answer too many", 'CALL { write(3, "more", 4); return 0; }', ""),
    ("speaks while loading", '__attribute__((constructor)) static void c(void) { write(3, "\\2\\0\\0\\0{}", 6); } ' + DOUBLE, ""),
]  # fmt: skip


@pytest.mark.parametrize(("body", "said"), [h[1:] for h in HOSTILE], ids=[h[0] for h in HOSTILE])
def test_speaks_out_of_turn(walls: object, folder: Path, body: str, said: str) -> None:
    found = fails(walls, body, folder)
    assert found.reason is Reason.PROTOCOL, found
    assert said in found.detail


FORGE = """
static char found[64];
static void answer(uint32_t nonce) {
    int n = sprintf(found + 4, "{\\"op\\":\\"call\\",\\"ok\\":true,\\"rc\\":0,\\"nonce\\":%u}", nonce);
    memcpy(found, &n, 4);
    send(3, found, n + 4, 0);
}
"""


def test_an_answer_to_another_question(walls: object, folder: Path) -> None:
    found = fails(walls, "#include <stdio.h>\n" + FORGE + "CALL { answer(12345); for (;;) pause(); }", folder)
    assert found == Failure(Reason.PROTOCOL, "answered what was not asked", cheat=True)


def test_an_answer_kept_ready_for_the_next_call(walls: object, folder: Path) -> None:
    """Sent in the first call, it lies in the channel before the second is asked."""
    body = "#include <stdio.h>\n" + FORGE + "static int n; CALL { if (n++) for (;;) pause(); answer(1); return 0; }"
    found = fails(walls, body, folder)
    assert found.reason is Reason.PROTOCOL


def test_reading_the_next_message_itself_gains_nothing(walls: object, folder: Path) -> None:
    """A candidate that serves the channel in place of the runner: it is timed all the same, and its work has to be done."""
    body = (
        "#include <stdio.h>\n" + FORGE + "CALL { static int n; struct { uint32_t op, a; uint64_t b; } m; if (n++) return 0;"
        " answer(0); recv(3, &m, 16, 0); answer(m.b >> 32); for (;;) pause(); }"
    )
    assert fails(walls, body, folder).reason is Reason.PROTOCOL


def test_descriptors_sent_to_the_judge_are_dropped(walls: object, folder: Path) -> None:
    body = """CALL {
        union { char s[CMSG_SPACE(4)]; struct cmsghdr a; } c; struct iovec v = {"fdfd", 4};
        struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = c.s, .msg_controllen = sizeof c.s};
        struct cmsghdr *m = CMSG_FIRSTHDR(&h); int fd = 3;
        m->cmsg_level = SOL_SOCKET; m->cmsg_type = SCM_RIGHTS; m->cmsg_len = CMSG_LEN(4); memcpy(CMSG_DATA(m), &fd, 4);
        for (int i = 0; i < 50; i++) sendmsg(3, &h, MSG_DONTWAIT);
        for (;;) pause(); }"""
    before = len(os.listdir("/proc/self/fd"))
    assert fails(walls, body, folder).reason is Reason.PROTOCOL
    assert len(os.listdir("/proc/self/fd")) == before


WAKES = {
    "timer": """CALL { static int n; timer_t t; struct sigevent e = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGCONT};
        struct itimerspec s = {{0, 1000000}, {0, 1000000}};
        if (!n++) { timer_create(CLOCK_MONOTONIC, &e, &t); timer_settime(t, 0, &s, 0); } return 0; }""",
    "input": """#include <fcntl.h>
    CALL { fcntl(3, F_SETOWN, getpid()); fcntl(3, 10, SIGCONT); fcntl(3, F_SETFL, fcntl(3, F_GETFL) | O_ASYNC); return 0; }""",
}


@pytest.mark.parametrize("how", WAKES)
def test_waking_itself_is_seen(walls: object, folder: Path, how: str) -> None:
    with candidate(walls, WAKES[how], folder) as rig:
        rig.runner.load(SLOW_S)
        found: object = None
        for _ in range(50):
            found = rig.runner.call(0, 1, SLOW_S)
            if isinstance(found, Failure):
                break
            signal.sigtimedwait([], 0.003)
        assert isinstance(found, Failure)
        assert found.reason is Reason.PROTOCOL
        assert found.cheat
        assert "woke itself" in found.detail


def test_stopping_itself(bare: BareWalls, folder: Path) -> None:
    assert fails(bare, "CALL { raise(SIGSTOP); return 0; }", folder, timeout_s=SHORT_S).reason is Reason.HANG
    found = fails(bare, "CALL { raise(SIGTSTP); return 0; }", folder, timeout_s=SHORT_S)
    assert found == Failure(Reason.PROTOCOL, "stopped itself")


def test_stopping_itself_inside_walls(folder: Path) -> None:
    walls = Walls.detect()
    if walls.strength != "walls":
        pytest.skip("only process 1 of a PID namespace ignores its own signals")
    with candidate(walls, "CALL { raise(SIGSTOP); raise(SIGTSTP); return 0; }", folder) as rig:
        rig.runner.load(SLOW_S)
        assert isinstance(rig.runner.call(0, 1, SLOW_S), Call)


def test_cannot_be_stopped(bare: BareWalls, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread in vfork takes part in no stop until its child thread has ended."""
    monkeypatch.setattr(leash, "GRACE_S", 0.2)
    body = """#include <sched.h>
    static char stack[65536] __attribute__((aligned(16)));
    static int spin(void *p) { for (;;) ; }
    CALL { clone(spin, stack + sizeof stack, CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_VFORK, 0); return 0; }"""
    found = fails(bare, body, folder, timeout_s=0.1)
    assert found == Failure(Reason.HANG, "could not be stopped", cheat=True)


def test_another_program_in_its_place(walls: object, folder: Path) -> None:
    found = fails(walls, 'CALL { execl("/bin/sleep", "sleep", "60", (char *)0); for (;;) pause(); }', folder, timeout_s=SHORT_S)
    assert found.reason in (Reason.HANG, Reason.CRASH)


def test_handlers_for_every_signal(walls: object, folder: Path) -> None:
    """It may handle what it likes: a fault that it swallows is a hang, and stopping needs no consent."""
    body = """static void h(int s) {} CALL { for (int s = 1; s < 65; s++) signal(s, h); *(volatile int *)0 = 1; return 0; }"""
    assert fails(walls, body, folder, timeout_s=SHORT_S).reason is Reason.HANG


MAKE_WRITABLE = """#include <sys/mman.h>
CALL { void *page = (void *)(w[0] & ~4095ul); Y[0] = mprotect(page, 4096, PROT_READ | PROT_WRITE); Y[1] = madvise(page, 4096, MADV_REMOVE); return 0; }"""


def test_inputs_cannot_be_made_writable(walls: object, folder: Path) -> None:
    with candidate(walls, MAKE_WRITABLE, folder) as rig:
        rig.runner.load(SLOW_S)
        assert isinstance(rig.runner.call(0, 1, SLOW_S), Call)
        assert rig.y.floats[:2].tolist() == [-1, -1]
        assert rig.x.floats[5] == 5


def test_buffers_keep_their_size(walls: object, folder: Path) -> None:
    """The candidate finds no descriptor of a buffer, and none can be resized."""
    body = """CALL { int n = 0; for (int fd = 4; fd < 256; fd++) n += ftruncate(fd, 1) == 0; Y[0] = n; return 0; }"""
    with candidate(walls, body, folder) as rig:
        rig.runner.load(SLOW_S)
        assert isinstance(rig.runner.call(0, 1, SLOW_S), Call)
        assert rig.y.floats[0] == 0
        assert os.fstat(rig.y.fd).st_size == SIZE


def test_cpu_time_is_that_of_all_threads(bare: BareWalls, folder: Path) -> None:
    body = """#include <pthread.h>
    static void *work(void *p) {
        struct timespec t = {0, 0};
        while (t.tv_nsec < 30000000) clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        return 0;
    }
    CALL { pthread_t t[2]; for (int i = 0; i < 2; i++) pthread_create(t + i, 0, work, 0);
           for (int i = 0; i < 2; i++) pthread_join(t[i], 0); return 0; }"""
    with candidate(bare, body, folder, threads=2) as rig:
        rig.runner.load(SLOW_S)
        done = rig.runner.call(0, 1, SLOW_S)
        assert isinstance(done, Call)
        assert done.cpu_ns >= 60_000_000


def test_more_cpu_time_than_threads_allow(walls: object, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "CORES_FACTOR", 0.0)
    monkeypatch.setattr(channel, "CORES_SLACK_NS", 0)
    assert fails(walls, "CALL { busy(0.001); return 0; }", folder).reason is Reason.CORES


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
