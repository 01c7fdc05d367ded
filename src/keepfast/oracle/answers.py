"""What the oracle answers: layouts, contents, whether a call was right, the lint, ceilings.

Keeps, for each case, its layout and the seeds of the bank that was filled last; never an answer. Must not know the channel.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import torch
from msgspec import Struct
from msgspec.structs import replace

from keepfast.errors import MachineError, UsageError
from keepfast.gpu import layout as places
from keepfast.gpu.layout import Layout
from keepfast.gpu.messages import (
    Answer,
    Ask,
    Bank,
    Describe,
    Described,
    Fill,
    Filled,
    Measured,
    Mutate,
    Mutated,
    Question,
    Tolerance,
)
from keepfast.model import Case, Task
from keepfast.oracle import ceilings, compare, draws, lint, memory
from keepfast.oracle.compare import Judged
from keepfast.oracle.reference import Reference, Results, Values

CHEAP_BYTES = 64 << 20  # of a set and its outputs: larger cases are not computed again to tell an old answer
EXCUSED = 1.0  # error of an answer that only compare() understands, when it has no size

Reply = Described | Filled | Answer | Mutated | Measured


class Held(Struct, frozen=True):
    """A bank as it was filled: the seeds of its draws and the memory that holds them."""

    seeds: tuple[tuple[int, ...], ...]
    memory: memory.Memory
    meta: tuple[int, ...]  # seed of what the host may read


class Oracle:
    def __init__(self, task: Task, device: str) -> None:
        self.task, self.device = task, torch.device(device)
        self.reference = Reference(task, device)
        self.memories = memory.Memories(self.device)
        self.layouts: dict[str, Layout] = {}
        self.banks: dict[str, Held] = {}

    def answer(self, question: Question, fds: Sequence[int]) -> tuple[Reply, list[int]]:
        """The reply, and descriptors that the caller sends and closes."""
        if isinstance(question, Describe):
            return self.describe(question), []
        if isinstance(question, Fill):
            return self.fill(question)
        if isinstance(question, Ask):
            return self.ask(question, fds), []
        if isinstance(question, Mutate):
            return lint.Linter(self.reference).run([(c, _bytes(self.layout(c))) for c in self.task.cases]), []
        return Measured(ceilings.measure(self.device)), []

    def case(self, name: str) -> Case:
        found = next((c for c in self.task.cases if c.name == name), None)
        if found is None:
            raise UsageError(f"no case `{name}`", where=f"task {self.task.name}")
        return found

    # ---------------------------------------------------------------------------------------- layouts

    def describe(self, question: Describe) -> Described:
        cases = [self.case(name) for name in question.cases] or list(self.task.cases)
        found = [self._described(case) for case in cases]
        layouts, limits = tuple(layout for layout, _ in found), tuple(limit for _, limit in found)
        results = tuple(draws.tolerances(layout) for layout in layouts)
        return Described(layouts, limits, results, self.reference.has_compare)

    def layout(self, case: Case) -> Layout:
        return self.layouts[case.name] if case.name in self.layouts else self._described(case)[0]

    def _described(self, case: Case) -> tuple[Layout, tuple[float, float]]:
        """Layout and own limit of a case, from a draw that is thrown away."""
        values = self.reference.inputs(case, lint.random_seed())
        self.layouts[case.name] = draws.layout_of(self.task, case, values, draws.outputs_of(self.task, self.reference.working(values)))
        return self.layouts[case.name], self.reference.limit(case, values)

    # ---------------------------------------------------------------------------------------- contents

    def fill(self, question: Fill) -> tuple[Filled, list[int]]:
        case = self.case(question.case)
        layout, old = self.layout(case), self.banks.pop(case.name, None)
        if old is not None:
            old.memory.close()
        stride = places.up(layout.set_bytes)
        with ExitStack() as stack:
            bank = self.memories.made(question.kind, stride * max(1, len(question.seeds)))
            stack.callback(bank.close)
            bank.image.zero_()
            for i, seed in enumerate(question.seeds):
                draws.write(
                    bank.image[i * stride : i * stride + layout.set_bytes], layout, self._drawn(case, layout, (seed, question.meta))
                )
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
            fd = bank.descriptor()
            stack.pop_all()
        self.banks[case.name] = Held(question.seeds, bank, question.meta)
        return Filled(Bank(question.kind, len(question.seeds), stride, bank.size)), [fd]

    def _drawn(self, case: Case, layout: Layout, seeds: tuple[Sequence[int], Sequence[int]]) -> Values:
        """The arguments of a draw, which lie as those of every other draw of the case. `seeds`: of it, and of what the host may read."""
        values = self.reference.inputs(case, *seeds)
        found = draws.layout_of(self.task, case, values, layout.outputs)
        if name := draws.alike(layout, found):
            raise lint.unlike(name, case)
        return values

    # ---------------------------------------------------------------------------------------- right or wrong

    def ask(self, question: Ask, fds: Sequence[int]) -> Answer:
        case = self.case(question.case)
        layout = self.layout(case)
        audit = places.audit(layout)
        if question.size < audit.size or len(fds) != 1:
            raise MachineError(
                f"audit memory of {question.size} bytes in {len(fds)} descriptors; case {case.name} needs {audit.size} in one"
            )
        lent = self.memories.lent(question.kind, question.size, fds[0])
        try:
            image = lent.image.to(self.device)  # no copy where it is there already
            return self._judged(case, layout, draws.read(image, layout), draws.results(image, layout, audit))
        finally:
            lent.close()

    def _judged(self, case: Case, layout: Layout, values: Values, got: Results) -> Answer:
        self.reference.at = case.name
        working, exact = self.reference.both(values)
        limits = compare.limits_of(self.task, case)
        judged = [compare.judge(name, got[name], working[name], exact[name], limits) for name in got]
        wrong = next((j.wrong for j in judged if j.wrong), "")
        excused = bool(wrong) and self.reference.has_compare
        if excused:
            wrong = self.reference.compare(case, values, got, exact)
        budgets = tuple(_budget(t, j, excused and not wrong) for t, j in zip(draws.tolerances(layout), judged, strict=True))
        return Answer(wrong, bool(wrong) and self._stale(case, layout, got, [j.name for j in judged if j.wrong]), budgets)

    def _stale(self, case: Case, layout: Layout, got: Results, names: Sequence[str]) -> bool:
        """Are the results that are wrong here right for another draw of the bank? Computed anew: answers are not kept."""
        bank, limits = self.banks.get(case.name), compare.limits_of(self.task, case)
        if bank is None or _bytes(layout) > CHEAP_BYTES:
            return False
        for seed in bank.seeds:
            values = self.reference.inputs(case, seed, bank.meta)
            working, exact = self.reference.both(values)
            wrong = any(compare.judge(name, got[name], working[name], exact[name], limits).wrong for name in names)
            if not wrong or (self.reference.has_compare and not self.reference.compare(case, values, got, exact)):
                return True
        return False


def _bytes(layout: Layout) -> int:
    return layout.set_bytes + layout.out_bytes


def _budget(tolerance: Tolerance, judged: Judged, excused: bool) -> Tolerance:
    """What two right answers may differ by. An answer that compare() excused shows itself how far a right one may be off."""
    rms, worst = judged.rms, judged.worst
    if excused and judged.wrong and judged.worst > 0:
        rms, worst = (max(b, f if f < float("inf") else EXCUSED) for b, f in ((rms, judged.found_rms), (worst, judged.found_worst)))
    return replace(tolerance, rms=rms, worst=worst)
