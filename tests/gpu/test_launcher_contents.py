"""The launcher on a real card: contents.cu against its description in NumPy, and everything the judge asks of an open case.

The tests of tests/launcher that need nothing of the card made of host memory, run again with a card; then what only a card can show.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from socket import AF_UNIX, SOCK_STREAM, socket, socketpair
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

from keepfast.gpu import messages
from keepfast.gpu.driver import BLOCK, CudaError, Device, Range, exported, physical
from keepfast.gpu.layout import audit, up
from keepfast.gpu.messages import Audit, Audited, Bench, Benched, Close, Opened, Profile, Profiled, Ran, Run, Solo, Soloed, Time, Timed
from keepfast.gpu.plan import Copy, Empty, Kernel, Memset, Node, Plan
from keepfast.launcher import kernels as ours
from tests.launcher import test_bench, test_contents
from tests.launcher.test_bench import *  # noqa: F403
from tests.launcher.test_contents import *  # noqa: F403
from tests.launcher.world import FACTOR, Case, N, World, bench, opened, peeking_at, pointer

del test_bench, test_contents
# A card does not let a process import what it has exported itself, and takes its context down: the test of the process covers it.
del test_a_call_goes_into_the_audit_memory_as_it_was_given  # noqa: F821
pytestmark = pytest.mark.alone
PLAN_KERNELS = Path(__file__).parents[1] / "launcher" / "plan_kernels.cu"
NONCE = 0x5EED


@pytest.fixture(scope="session")
def compiled() -> tuple[bytes, bytes]:
    """Our kernels and those of the plans, for the card that is here."""
    try:
        arch = Device().arch
    except (CudaError, RuntimeError) as error:
        pytest.skip(f"no card: {error}")
    return ours.compiled(ours.source(), arch), ours.compiled(PLAN_KERNELS.read_bytes(), arch)


@pytest.fixture
def world(compiled: tuple[bytes, bytes]) -> Iterator[World]:
    made = World(None, compiled)
    yield made
    made.close()


def test_every_kind_of_node(world: World) -> None:
    """Memset, copy, empty node, a programmatic edge, a cluster, a cooperative launch and a carveout: the result is that of all of them."""
    case = world.case()
    arena, made = case.plan("scale")
    nodes: list[Node] = []
    for call in range(case.calls):
        nodes += _every_kind(case, made, call, len(nodes))
    made = replace(made, nodes=tuple(nodes))
    assert world.open(case, [(arena, made), case.plan("scale")]).fault is None
    for alone in (False, True):
        assert world.ask(Run(0, NONCE, 5, alone=alone)).fault is None
        world.ask(Audit(0, 3))
        places = audit(case.layout)
        found = world.audited(places.size)
        x, y, out = (found[at : at + 4 * N].view(np.float32) for at in (0, 1536, places.results[0]))
        wanted = x * np.float32(FACTOR) + y
        wanted[:4], wanted[4:8] = 0, x[:4]
        assert np.allclose(out, wanted, rtol=1e-6)
    assert {k.name for k in world.ask(Profile(0)).kernels} == {"noop", "scale", "add_to"}


def _every_kind(case: Case, made: Plan, call: int, first: int) -> list[Node]:
    x, out = made.sets + call * case.layout.set_bytes, made.results[call][0].address
    scale = made.nodes[call].work
    assert isinstance(scale, Kernel)
    noop = Kernel(0, "noop", (4, 1, 1), (64, 1, 1), 0, ())
    add = Kernel(0, "add_to", (2, 1, 1), (64, 1, 1), 0, ((0, pointer(out)), (8, pointer(x + 1536)), (16, pointer(N))), cooperative=True)
    clustered = world_has_clusters(scale)
    return [
        Node(call, noop, ()),
        Node(call, clustered, (first,), (first,)),
        Node(call, Empty(), (first + 1,)),
        Node(call, add, (first + 2,)),
        Node(call, Memset(out, 0, 0, 4, 4, 1), (first + 3,)),
        Node(call, Copy(out + 16, 16, x, 16, 16, 1), (first + 3, first + 4)),
    ]


def world_has_clusters(scale: Kernel) -> Kernel:
    """Clusters came with compute capability 9."""
    if Device().arch[0] < 9:
        return replace(scale, shared=60_000, carveout=100)
    return replace(scale, grid=(4, 1, 1), cluster=(2, 1, 1), shared=60_000, carveout=100)


def test_time_of_one_kernel_twice(world: World) -> None:
    """Not a measurement of noise: that the clocks agree and the numbers are numbers."""
    opened(world, "scale", "scale", calls=200)
    timed = world.ask(Time(10, 200, 7))
    assert timed.fault is None
    assert (timed.differing, timed.odd, timed.inputs, timed.unwritten) == (0, (), 0, 0)
    assert abs(timed.d) < 0.05
    assert abs(timed.host_ratio - 1) < 0.1
    assert timed.sentinel_ms[2] < 2 * timed.sentinel_ms[0]
    alone = world.ask(Solo(0, 200, 8)).ms
    assert 0.7 < alone / timed.subject_ms < 1.4


# --------------------------------------------------------------------------------------------- the process


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[socket]:
    mine, theirs = socketpair(AF_UNIX, SOCK_STREAM)
    argv = [sys.executable, "-m", "keepfast.launcher.serve", str(theirs.fileno()), "0", str(tmp_path)]
    with mine, subprocess.Popen(argv, pass_fds=[theirs.fileno()]) as process:
        theirs.close()
        yield mine
        mine.shutdown(1)
        assert process.wait(30) == 0


def ask(channel: socket, order: Any, kind: Any, fds: list[int] | None = None) -> tuple[Any, list[int]]:
    messages.send(channel, order, fds or [])
    return messages.receive(channel, kind, timeout_s=60)


def exported_bank(world: World, data: bytes) -> int:
    """A descriptor of device memory that holds `data`, as the oracle hands one over."""
    size = up(len(data), BLOCK)
    memory = physical(world.device, size, exportable=True)
    mapped = Range(world.device, 0, size)
    mapped.map(mapped.base, size, memory)
    mapped.access(True)
    world.device.write(mapped.base, data)
    return exported(world.device, memory)


def imported_audit(world: World, fd: int, size: int) -> np.ndarray:
    from keepfast.gpu.driver import imported

    mapped = Range(world.device, 0, size)
    mapped.map(mapped.base, size, imported(world.device, fd))
    mapped.access(True)
    return np.frombuffer(world.device.read(mapped.base, size), np.uint8)


def test_the_process_serves_a_case_and_ends_with_a_fault(world: World, channel: socket) -> None:
    """Bank and audit memory cross processes as descriptors of device memory. The last kernel reaches for memory of the other arm."""
    case = world.case()
    plans = peeking_at(case, lambda plan, call: plan.results[call][0].address)
    order, fds = world.order(case, [case.plan("scale"), case.plan("scale_apart")], kind="gpu", rms=1e-5)
    fds[0] = exported_bank(world, world.bank.tobytes())
    found, handed = ask(channel, order, Opened, fds)
    assert found.fault is None, found.fault
    assert found.kernels[0][0].registers > 0
    assert ask(channel, Run(0, NONCE, 5, keep=True), Ran)[0].unwritten == ()
    assert ask(channel, Audit(0, 2), Audited)[0].fault is None
    seen = imported_audit(world, handed[0], found.audit_bytes)
    out, x = (seen[at : at + 4 * N].view(np.float32) for at in (audit(case.layout).results[0], 0))
    assert np.array_equal(out, x * np.float32(FACTOR))
    assert ask(channel, Run(1, NONCE, 5, against=True), Ran)[0].odd == ()
    assert ask(channel, Time(3, 5, 1), Timed)[0].fault is None
    assert ask(channel, Solo(1, 5, 4), Soloed)[0].ms > 0
    assert ask(channel, Profile(1), Profiled)[0].kernels[0].share > 0.9
    messages.send(channel, Close())
    numbers = dict(ask(channel, Bench(), Benched)[0].numbers)
    print(numbers)
    assert all(value > 0 for value in numbers.values())
    order, more = world.order(case, plans, kind="gpu")
    more[0] = fds[0]
    found, _ = ask(channel, order, Opened, more)
    assert found.fault is None, found.fault
    fault = ask(channel, Run(1, NONCE, 5), Ran)[0].fault
    assert (fault.kind, fault.arm) == ("fault", 1)
    assert "illegal address" in fault.detail
    assert channel.recv(1) == b""  # it has ended
    for fd in (*fds, *handed):
        os.close(fd)


def test_shares_and_bench_agree_with_the_card(world: World) -> None:
    opened(world, "scale", "scale_apart")
    assert bench(world).case.device.l2_bytes > 1 << 20
    numbers = dict(world.ask(Bench()).numbers)
    assert 0.2 < numbers["graph_node_us"] < 20
    assert numbers["read_GBps"] > 50
