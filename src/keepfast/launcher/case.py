"""A case opened in the launcher: one or two arms on the same memory, the tables our kernels read, the bank, the audit memory.

Owns what is mapped and in which order it is made. Must not know what is launched when, or how long it takes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from random import Random

from keepfast import wire
from keepfast.gpu import plan as plans
from keepfast.gpu.driver import BLOCK, Device, ok
from keepfast.gpu.layout import audit
from keepfast.gpu.messages import Open
from keepfast.gpu.plan import Plan, PlanError
from keepfast.launcher import memory, tables
from keepfast.launcher.arm import Arm, Own, Tables
from keepfast.launcher.faults import Failed, asked
from keepfast.launcher.kernels import REGISTERS, Kernels
from keepfast.launcher.memory import Audit, Footprint, Mapped, Private, Shared
from keepfast.launcher.sizing import LAUNCHES, Need


class Case:
    """`launches`: of how many in a slot the results can be kept. The descriptors stay the caller's."""

    def __init__(self, device: Device, kernels: Kernels, order: Open, fds: Sequence[int], rng: Random) -> None:
        self.device, self.kernels, self.order, self.layout, self.rng = device, kernels, order, order.layout, rng
        self.arms: list[Arm] = []
        self.plans = _plans(order, fds)
        self._open: Arm | None = None
        with ExitStack() as self._stack:  # what was made is given back when the rest cannot be
            self._make(fds)
            self._stack = self._stack.pop_all()

    def close(self) -> None:
        self._stack.close()

    # ---------------------------------------------------------------------------------------- making it

    def _make(self, fds: Sequence[int]) -> None:
        order, layout = self.order, self.layout
        self.parts = tables.parts(layout)
        self.results, self.kept_bytes = tables.results(layout, order.tolerances)
        self.calls = max(plan.calls for plan in self.plans)
        self.counts = tables.Counts(self.calls, len(self.results))
        places = memory.arenas(order.arenas, order.arena_bytes)
        prints = [Footprint(plan, layout.set_bytes, place, i) for i, (plan, place) in enumerate(zip(self.plans, places, strict=True))]
        self._own = [tables.addresses(plan, layout, i) for i, plan in enumerate(self.plans)]
        self._blocks = [tables.blocks(plan.blocks) for plan in self.plans]
        self.launches = self._launches(prints)
        self._map(prints)
        self._private(fds)
        for arm in self.arms:
            arm.lay_out(self.kernels, layout, self._tables(), self._own_of(arm))

    def _launches(self, prints: Sequence[Footprint]) -> int:
        sets, others = Shared.needed(prints)
        need = Need(
            case=self.layout.case,
            sets=sets,
            others=others,
            results=self.kept_bytes * self.calls,
            bank=self.order.bank.size if self.order.bank.kind == "host" else 0,
            audit=audit(self.layout).size,
            fixed=Private.bytes(self._sizes(0)) + 3 * BLOCK,  # roundings, and what lies apart
        )
        return need.launches(self.device.memory()[0], LAUNCHES if len(self.plans) == 2 else 1)

    def _map(self, prints: Sequence[Footprint]) -> None:
        """The arms in random order: the process prefers what it was given first."""
        shared = Shared(self.device, prints, self._stack)
        mapped: dict[int, Mapped] = {}
        first = self.rng.randrange(len(prints))
        for index in dict.fromkeys((first, *range(len(prints)))):
            mapped[index] = Mapped(self.device, prints[index], shared, index)
            self._stack.callback(mapped[index].close)
        made: dict[int, Arm] = {}
        for index in mapped:
            made[index] = Arm(index, self.device, self.plans[index], mapped[index])
            self._stack.callback(made[index].close)
        self.arms = [made[i] for i in sorted(made)]

    def _private(self, fds: Sequence[int]) -> None:
        device, order = self.device, self.order
        self.own = Private(device, self._sizes(self.launches), self.rng, self._stack).at
        self.audit = Audit(device, audit(self.layout).size, self._audit_fd(fds), self.rng, self._stack)
        if order.bank.kind == "gpu":
            self.own["bank"] = memory.bank_of_gpu(device, order.bank, fds[0], self.rng, self._stack)
        else:
            memory.upload(device, fds[0], self.own["bank"], order.bank.size)
        self._write_tables()
        # What `scrub` itself leaves behind are addresses of these, so nothing else is near them.
        apart = Private(device, {"zeros": 4 * REGISTERS, "sink": 8}, self.rng, self._stack).at
        self.wash = self.kernels.wash(self.own["wash"], 2 * device.l2_bytes, apart["sink"])
        self.scrub = self.kernels.scrub(apart["zeros"], apart["sink"])
        self.sentinel = self.kernels.sentinel(apart["sink"])

    def _audit_fd(self, fds: Sequence[int]) -> int | None:
        if self.order.audit != "host":
            return None
        fd = os.dup(fds[-1])
        self._stack.callback(os.close, fd)
        return fd

    def _write_tables(self) -> None:
        device = self.device
        device.write(self.own["parts"], tables.packed(self.parts))
        device.write(self.own["weights"], tables.packed(tables.only(self.parts, self._weights())))
        device.write(self.own["results"], tables.packed(self.results))
        device.write(self.own["audited"], tables.packed(tables.audited(self.layout, self.results)))
        for index, (rows, store) in enumerate(self._blocks):
            device.write(self.own[f"addresses {index}"], self._own[index].tobytes())
            device.write(self.own[f"blocks {index}"], tables.packed(rows))
            device.write(self.own[f"store {index}"], store)

    def _sizes(self, launches: int) -> dict[str, int]:
        """Bytes of each piece of private memory. With 0 launches: what does not depend on them, the bank apart."""
        sizes = {
            "wash": 2 * self.device.l2_bytes,
            "parts": len(tables.packed(self.parts)),
            "weights": len(tables.packed(self.parts)),
            "results": len(tables.packed(self.results)),
            "audited": len(tables.packed(self.results)),
            "counts": LAUNCHES * self.counts.bytes,
        }
        for index, (rows, store) in enumerate(self._blocks):
            own = {"addresses": self._own[index].nbytes, "blocks": len(tables.packed(rows)), "store": len(store)}
            sizes |= {f"{name} {index}": size for name, size in own.items()}
        if launches:
            sizes["kept"] = launches * self.kept_bytes * self.calls
            sizes["bank"] = self.order.bank.size if self.order.bank.kind == "host" else 0
        return sizes

    def _tables(self) -> Tables:
        at = self.own
        return Tables(
            bank=at["bank"],
            draws=self.order.bank,
            parts=at["parts"],
            weights=at["weights"],
            part_rows=self.parts,
            results=at["results"],
            audited=at["audited"],
            result_rows=self.results,
            kept_bytes=self.kept_bytes,
        )

    def _weights(self) -> frozenset[int]:
        """Where the weights of a set begin."""
        tensors = (g.tensor for g in self.layout.given if g.tensor is not None)
        return frozenset(t.offset for t in tensors if t.role == "weight" and t.nbytes)

    def _own_of(self, arm: Arm) -> Own:
        at, index = self.own, arm.index
        return Own(at[f"addresses {index}"], at[f"blocks {index}"], self._blocks[index][0], at[f"store {index}"])

    # ---------------------------------------------------------------------------------------- what slots need

    def kept(self, launch: int) -> int:
        """Where the results of launch number so-and-so of a slot are kept."""
        return self.own["kept"] + launch * self.kept_bytes * self.calls

    def counters(self, launch: int) -> int:
        return self.own["counts"] + launch * self.counts.bytes

    def clear_counters(self) -> None:
        self.device.fill(self.own["counts"], LAUNCHES * self.counts.bytes, 0)

    def settle(self) -> None:
        """Queue what puts the card into the same state before each launch: nothing of ours in caches, shared memory or registers."""
        self.wash.go()
        self.scrub.go()
        ok(self.device.cu.cuCtxResetPersistingL2Cache(), "cuCtxResetPersistingL2Cache")

    def only(self, arm: Arm) -> None:
        """From now on this arm's memory is the only one that can be reached. Waits for what is queued."""
        self.device.synchronise()
        if self._open is arm:
            return
        if self._open is not None:
            self._open.mapped.access(False)
        self._open = None
        arm.mapped.access(True)
        self._open = arm

    def build(self, calls: int) -> None:
        """Executables of `calls` calls, unless they are there: one of a single arm; of two arms two each, made in the order A B B A,
        because the one made first is a little faster, whatever it holds. Memory is open while a graph that names it is made."""
        arms = [arm for arm in self.arms if calls <= arm.plan.calls]
        if all(calls in arm.chains for arm in arms):
            return
        first = self.rng.sample(arms, len(arms))
        for turn in (first, first[::-1])[: len(arms)]:
            order = self.rng.sample(range(calls), calls)
            for arm in turn:
                self.only(arm)
                arm.chain(calls, order)


def _plans(order: Open, fds: Sequence[int]) -> tuple[Plan, ...]:
    """The plans behind the descriptors, read once and checked."""
    arms, host = len(order.arenas), order.audit == "host"
    wanted = 1 + arms + host
    asked(len(order.plan_bytes) == arms, f"{len(order.plan_bytes)} plans for {arms} arms")
    asked(len(fds) == wanted, f"{len(fds)} descriptors came with Open; it needs {wanted}: bank, plans{', audit memory' * host}")
    bank = order.bank
    whole = bank.draws >= 1 and bank.stride % tables.GRANULE == 0 and bank.stride >= order.layout.set_bytes
    asked(whole and bank.draws * bank.stride <= bank.size and bank.kind in ("gpu", "host"), f"a bank that cannot be: {bank}")
    return tuple(_plan(fd, size, arm, order.layout.case) for arm, (fd, size) in enumerate(zip(fds[1:], order.plan_bytes, strict=False)))


def _plan(fd: int, size: int, arm: int, case: str) -> Plan:
    asked(0 < size <= plans.MAX_BYTES, f"a plan of {size} bytes")
    data = wire.read(fd, size)
    asked(len(data) == size, f"the plan of arm {arm} has {len(data)} bytes, {size} were announced")
    try:
        plan = plans.decode(data)
    except PlanError as error:
        raise Failed("not-a-plan", str(error), arm) from None
    asked(plan.case == case, f"a plan of case {plan.case!r} for {case!r}")
    return plan
