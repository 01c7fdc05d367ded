"""The launcher's process: messages over a socket, faults of kernels, a machine without a card."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from socket import AF_UNIX, SOCK_STREAM, socket, socketpair
from typing import Any

import pytest

from keepfast import wire
from keepfast.gpu import messages
from keepfast.gpu.driver import CudaError, Moved
from keepfast.gpu.messages import Audit, Audited, Bench, Benched, Close, Opened, Profile, Profiled, Ran, Run, Solo, Soloed, Time, Timed
from keepfast.launcher import faults
from keepfast.launcher import kernels as ours
from keepfast.launcher import serve as serving
from tests.launcher.world import World, bench, opened, peeking_at

NONCE = 42


@pytest.fixture
def channel(world: World) -> Iterator[socket]:
    mine, theirs = socketpair(AF_UNIX, SOCK_STREAM)
    thread = threading.Thread(target=serving.serve, args=(theirs, world.server))
    thread.start()
    yield mine
    mine.close()
    thread.join(10)
    theirs.close()
    assert not thread.is_alive()


def ask(channel: socket, order: Any, kind: Any, fds: list[int] | None = None) -> tuple[Any, list[int]]:
    messages.send(channel, order, fds or [])
    return messages.receive(channel, kind, timeout_s=20)


def test_a_whole_case_over_the_socket(world: World, channel: socket) -> None:
    case = world.case()
    order, fds = world.order(case, [case.plan("scale"), case.plan("scale_apart")], rms=1e-5, kind="gpu")
    found, handed = ask(channel, order, Opened, fds)
    assert found.fault is None
    assert len(handed) == 1
    assert ask(channel, Run(0, NONCE, 5), Ran)[0].fault is None
    assert ask(channel, Audit(0, 1), Audited)[0].fault is None
    assert os.pread(handed[0], 64, 0) != bytes(64)  # exported, and written
    assert ask(channel, Time(2, 5, 1), Timed)[0].fault is None
    assert ask(channel, Solo(0, 5, 4), Soloed)[0].ms > 0
    assert ask(channel, Profile(1), Profiled)[0].kernels[0].share == 1.0
    messages.send(channel, Close())  # no answer
    found, more = ask(channel, order, Opened, fds)
    assert found.fault is None
    assert len(more) == 1
    for fd in (*fds, *handed, *more):
        os.close(fd)


def test_orders_without_a_case(world: World, channel: socket) -> None:
    world.cu.total = 64 << 20
    for order, kind in (
        (Run(0, 1, 1), Ran),
        (Audit(0, 0), Audited),
        (Time(1, 1, 0), Timed),
        (Solo(0, 1, 1), Soloed),
        (Profile(0), Profiled),
    ):
        fault = ask(channel, order, kind)[0].fault
        assert (fault.kind, fault.arm) == ("machine", -1)
        assert "without an open case" in fault.detail
    messages.send(channel, Close())
    numbers = dict(ask(channel, Bench(), Benched)[0].numbers)
    assert {"launch_us", "graph_launch_us", "graph_node_us", "copy_GBps", "read_GBps", "write_GBps", "sentinel_ms", "l2_bytes"} <= set(
        numbers
    )
    assert all(value > 0 for value in numbers.values())


def test_a_kernel_that_reaches_for_the_other_arm_faults_and_the_process_ends(world: World, channel: socket) -> None:
    case = world.case()
    honest, peeking = peeking_at(case, lambda plan, call: plan.results[call][0].address)
    order, fds = world.order(case, [honest, peeking], kind="gpu")
    found, handed = ask(channel, order, Opened, fds)
    assert found.fault is None
    assert ask(channel, Run(0, NONCE, 5), Ran)[0].fault is None
    fault = ask(channel, Run(1, NONCE, 5), Ran)[0].fault
    assert (fault.kind, fault.arm) == ("fault", 1)
    assert "illegal address" in fault.detail
    messages.send(channel, Run(0, NONCE, 5))
    with pytest.raises(wire.WireError):  # in a process of its own the channel would be closed; here nobody listens
        messages.receive(channel, Ran, timeout_s=0.5)
    for fd in (*fds, *handed):
        os.close(fd)


def test_a_fault_while_timed_names_the_arm(world: World) -> None:
    case = world.case()
    honest, peeking = peeking_at(case, lambda plan, call: plan.results[call][0].address)
    assert world.open(case, [peeking, honest]).fault is None
    answer = world.server.answer(Time(2, 5, 0))
    assert answer.end
    fault = answer.record.fault  # type: ignore[union-attr]
    assert (fault.kind, fault.arm) == ("fault", 0)
    world.cu.sticky = 0  # so that the fixture can give everything back


@pytest.mark.parametrize(
    ("error", "arm", "kind"),
    [
        (CudaError("x", 700), 1, "fault"),
        (CudaError("x", 710), 0, "fault"),
        (CudaError("x", 716), 0, "fault"),
        (CudaError("x", 719), 0, "fault"),
        (CudaError("x", 700), -1, "machine"),
        (CudaError("x", 214), 0, "machine"),
        (CudaError("x", 2), 0, "memory"),
        (Moved("x"), 0, "collision"),
        (CudaError("x"), 0, "machine"),
    ],
)
def test_errors_of_the_driver_in_words(error: CudaError, arm: int, kind: str) -> None:
    assert faults.of(error, arm).kind == kind


def test_a_launch_that_is_refused(world: World) -> None:
    opened(world, "scale")
    world.cu.refusals["cuGraphLaunch"] = lambda *_: 1
    fault = world.ask(Run(0, NONCE, 5)).fault
    assert (fault.kind, fault.arm) == ("launch", 0)
    world.cu.refusals = {}
    assert world.ask(Run(0, NONCE, 5)).fault is None
    assert bench(world).running == 0


def test_a_close_that_fails_ends_the_process(world: World) -> None:
    opened(world, "scale")
    world.cu.refusals["cuMemUnmap"] = lambda *_: 999
    answer = world.server.answer(Close())
    assert (answer.record, answer.end) == (None, True)


# --------------------------------------------------------------------------------------------- the process


def test_without_a_card_every_order_is_answered() -> None:
    """Wherever this runs there is no card number 97."""
    mine, theirs = socketpair(AF_UNIX, SOCK_STREAM)
    argv = [sys.executable, "-m", "keepfast.launcher.serve", str(theirs.fileno()), "97"]
    with mine, subprocess.Popen(argv, pass_fds=[theirs.fileno()]) as process:
        theirs.close()
        for order, kind in ((Bench(), Benched), (Run(0, 1, 1), Ran)):
            fault = ask(mine, order, kind)[0].fault
            assert fault.kind == "machine"
            assert "the card cannot be used" in fault.detail
        messages.send(mine, Close())
        mine.shutdown(1)
        assert process.wait(10) == 0


def test_the_launcher_imports_no_torch_and_no_judge() -> None:
    code = (
        "import sys, keepfast.launcher.serve; print([m for m in sys.modules if m.split('.')[0] in ('torch', 'triton') or m.startswith("
        "('keepfast.judge', 'keepfast.task', 'keepfast.capture', 'keepfast.model'))])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_our_kernels_are_compiled_once_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[int, ...]] = []

    def compiled(text: bytes, arch: tuple[int, ...]) -> bytes:
        made.append(arch)
        return b"cubin of " + bytes(arch)

    monkeypatch.setattr(ours, "compiled", compiled)
    for arch in ((9, 0), (9, 0), (8, 0), (9, 0)):
        assert serving.image(arch, tmp_path) == b"cubin of " + bytes(arch)
    assert made == [(9, 0), (8, 0)]
    monkeypatch.setattr(ours, "source", lambda: b"another text")
    serving.image((9, 0), tmp_path)
    assert len(made) == 3
    assert serving.image((9, 0), None) == b"cubin of \x09\x00"
    assert sorted(p.suffix for p in tmp_path.iterdir()) == [".cubin"] * 3
