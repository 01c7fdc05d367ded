"""Candidates that mean harm: they talk, wake, stop, hide and grow, and the judge sees it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from keepfast.judge import channel, leash
from keepfast.judge.channel import Call, Failure
from keepfast.model import Reason
from keepfast.walls.base import Walls

from .kit import DOUBLE, SHORT_S, SIZE, SLOW_S, BareWalls, candidate, fails

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


BY_TIMER = """static void h(int s) {}
CALL { static int n; timer_t t; struct sigevent e = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGCONT};
    struct itimerspec s = {{0, 5000000}, {0, 5000000}};
    if (!n++) { signal(SIGCONT, h); timer_create(CLOCK_MONOTONIC, &e, &t); timer_settime(t, 0, &s, 0); } return 0; }"""
BY_INPUT = """#include <fcntl.h>
CALL { fcntl(3, F_SETOWN, getpid()); fcntl(3, 10, SIGCONT); fcntl(3, F_SETFL, fcntl(3, F_GETFL) | O_ASYNC); return 0; }"""


def waking(walls: object, body: str, folder: Path) -> Failure:
    """What comes of a candidate that is woken while it has to be stopped."""
    with candidate(walls, body, folder) as rig:
        rig.runner.load(SLOW_S)
        found: Call | Failure | None = None
        for _ in range(50):
            found = rig.runner.call(0, 1, SLOW_S)
            if isinstance(found, Failure):
                break
            time.sleep(0.02)
    assert isinstance(found, Failure)
    assert found.cheat
    return found


def test_waking_itself_by_a_timer(walls: object, folder: Path) -> None:
    found = waking(walls, BY_TIMER, folder)
    # On a machine so busy that the timer is quicker than the stop, it cannot be stopped at all.
    assert "woke itself" in found.detail or found.reason is Reason.HANG


def test_waking_itself_by_the_message(bare: BareWalls, folder: Path) -> None:
    """A signal on input would wake it when the judge speaks, before the clock runs. Walls do not allow to ask for it."""
    found = waking(bare, BY_INPUT, folder)
    assert found.reason is Reason.PROTOCOL
    assert "woke itself" in found.detail


def stoppable() -> bool:
    """Whether SIGTSTP stops a process of this group."""
    pid = os.fork()
    if pid == 0:
        os.kill(os.getpid(), signal.SIGTSTP)
        os._exit(0)
    _, status = os.waitpid(pid, os.WUNTRACED)
    if os.WIFSTOPPED(status):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return os.WIFSTOPPED(status)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_stopping_itself(bare: BareWalls, folder: Path) -> None:
    assert fails(bare, "CALL { raise(SIGSTOP); return 0; }", folder, timeout_s=SHORT_S).reason is Reason.HANG
    if not stoppable():
        pytest.skip("these tests run in an orphaned process group, where the kernel ignores SIGTSTP")
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
    static const int FLAGS = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_VFORK;
    CALL { clone(spin, stack + sizeof stack, FLAGS, 0); return 0; }"""
    found = fails(bare, body, folder, timeout_s=1.0)  # long enough for it to come to its call
    assert found == Failure(Reason.HANG, "could not be stopped", cheat=True)


def test_another_program_in_its_place(walls: object, folder: Path) -> None:
    found = fails(walls, 'CALL { execl("/bin/sleep", "sleep", "60", (char *)0); for (;;) pause(); }', folder, timeout_s=SHORT_S)
    assert found.reason in (Reason.HANG, Reason.CRASH)


def test_handlers_for_every_signal(walls: object, folder: Path) -> None:
    """It may handle what it likes: a fault that it swallows is a hang, and stopping needs no consent."""
    body = """static void h(int s) {} CALL { for (int s = 1; s < 65; s++) signal(s, h); *(volatile int *)0 = 1; return 0; }"""
    assert fails(walls, body, folder, timeout_s=SHORT_S).reason is Reason.HANG


MAKE_WRITABLE = """#include <sys/mman.h>
CALL {
    void *page = (void *)(w[0] & ~4095ul);
    Y[0] = mprotect(page, 4096, PROT_READ | PROT_WRITE);
    Y[1] = madvise(page, 4096, MADV_REMOVE);
    return 0;
}"""


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
