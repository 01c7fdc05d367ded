"""For tests of runners: small C candidates, shared memory on both sides, and walls that are not there."""

from __future__ import annotations

import hashlib
import mmap
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from keepfast import native, wire
from keepfast.judge.channel import Call, Failure, Runner, RunnerSpec, c_runner
from keepfast.walls.base import Wall

HEAD = """#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <signal.h>
#include <time.h>
#include <sys/socket.h>
#define CALL __attribute__((visibility("default"))) int keepfast_call(const uint64_t *w)
#define X ((const float *)w[0])
#define Y ((float *)w[1])
#define N ((int64_t)w[2])
static inline void busy(double seconds) {
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    do clock_gettime(CLOCK_MONOTONIC, &b);
    while (b.tv_sec - a.tv_sec + 1e-9 * (b.tv_nsec - a.tv_nsec) < seconds);
}
"""
DOUBLE = "CALL { for (int64_t i = 0; i < N; i++) Y[i] = 2 * X[i]; return 0; }"
SIZE = 8192  # bytes of each buffer
SLOW_S = 20.0  # for what is expected to come: the machine may be busy
SHORT_S = 0.3  # for what is expected not to come


def compiled(body: str, folder: Path, *, head: str = HEAD) -> str:
    """Path of a shared object; `body` defines the call."""
    out = folder / (hashlib.sha256((head + body).encode()).hexdigest()[:16] + ".so")
    if not out.exists():
        source = out.with_suffix(".c")
        source.write_text(head + body)
        subprocess.run([str(native.compiler()), "-O1", "-w", "-shared", "-fPIC", "-pthread", "-o", str(out), str(source)], check=True)
    return str(out)


LAUNCH = """#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv) {
    if (dup2(atoi(argv[1]), 3) < 0 || (atoi(argv[1]) != 3 && close(atoi(argv[1])) != 0)) return 127;
    execv(argv[2], argv + 2);
    return 127;
}
"""


class BareWalled:
    """A child without walls, with the methods of walls.base.Walled."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process, self.pid = process, process.pid

    def __enter__(self) -> BareWalled:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def wait(self, timeout_s: float) -> int | None:
        end = time.monotonic() + timeout_s
        while True:
            found = os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) if self.process.returncode is None else None
            if found is not None:
                return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
            if time.monotonic() >= end:
                return self.process.returncode
            time.sleep(0.001)

    def kill(self) -> int:
        self.process.kill()
        return self.process.wait()


class BareWalls:
    """Starts the program as it is: what a machine without any wall would do, and the least that Runner may rely on."""

    strength = "none"

    def folder(self) -> Path:
        return Path(tempfile.mkdtemp(prefix="keepfast-"))

    def __init__(self, folder: Path) -> None:
        self.launch = folder / "launch"
        (folder / "launch.c").write_text(LAUNCH)
        subprocess.run([str(native.compiler()), "-o", str(self.launch), str(folder / "launch.c")], check=True)

    def spawn(self, wall: Wall, argv: tuple[str, ...], *, stdout: int | None = None, stderr: int | None = None) -> BareWalled:
        (channel,) = wall.keep_fds
        command = [str(self.launch), str(channel), *argv]
        environment = {**os.environ, **dict(wall.env)}
        process = subprocess.Popen(command, pass_fds=(channel,), env=environment, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr)
        return BareWalled(process)


class Memory:
    """Shared memory that the test sees as an array."""

    def __init__(self, writable: bool, size: int = SIZE) -> None:
        self.size, self.writable = size, writable
        self.fd = wire.memfd("test", size)
        self.map = mmap.mmap(self.fd, size)
        if not writable:
            wire.seal_writes(self.fd)

    @property
    def floats(self) -> np.ndarray:
        return np.frombuffer(self.map, np.float32)

    def close(self) -> None:
        os.close(self.fd)


class Rig:
    """A started runner with an input `x`, an output `y` and a table of three calls on them (1000 elements)."""

    def __init__(self, runner: Runner, x: Memory, y: Memory) -> None:
        self.runner, self.x, self.y = runner, x, y
        self.pid = runner._walled.pid

    def state(self) -> str:
        """Of the process, as the kernel says it: T is stopped."""
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]

    def alive(self) -> bool:
        return Path(f"/proc/{self.pid}").exists()


@contextmanager
def rig(walls: object, spec: RunnerSpec, layout: wire.Layout = ()) -> Iterator[Rig]:
    x, y = Memory(writable=False), Memory(writable=True)
    x.floats[:] = np.arange(SIZE // 4)
    with Runner.start(walls, spec) as runner:  # type: ignore[arg-type]  # BareWalls has the methods that are used
        kinds = [runner.map(x.fd, SIZE, False, "x") + 1, runner.map(y.fd, SIZE, True, "y") + 1, 0, 0]
        fd = wire.table(kinds, [[0, 0, 1000, None]] * 3)
        runner.table(fd, layout)
        os.close(fd)
        yield Rig(runner, x, y)
    x.close()
    y.close()


@contextmanager
def candidate(walls: object, body: str, folder: Path, *, threads: int = 1) -> Iterator[Rig]:
    """A rig around a C candidate, not yet loaded."""
    with rig(walls, c_runner(compiled(body, folder), threads=threads)) as made:
        yield made


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
