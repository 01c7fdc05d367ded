"""Can this task be judged at all? Degenerate references, ignored inputs, contents that do not mix, and mutants.

Each wrong answer must fail in at least one case, or the task is refused before a search begins. Must not know candidates,
clocks or messages other than what it reports.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import torch
from msgspec.structs import replace

from keepfast.errors import KeepfastError, TaskError
from keepfast.gpu.messages import Mutant, Mutated
from keepfast.model import Case
from keepfast.oracle import compare, draws, mutants, tensors
from keepfast.oracle.mutants import Draw
from keepfast.oracle.reference import Reference, Results, Values, seed_of

AGAIN = 7  # more draws before an input is said to be ignored: two orders of two sequences are the same half of the time
CASES = 3  # that are linted: the smallest
CASE_BYTES = 64 << 20  # of a set and its outputs, at most
LIKE = 4.0  # mixing may change the RMS of an answer so many times
LINT = "see docs/tasks.md, lint"
SCALES = tuple(2.0**-n for n in range(1, 14))  # of the task's own tolerance, in which a survivor is looked for
VARY = "add a small case of odd size or let inputs() vary more, so that these differ"
Pair = tuple[Draw, Draw]


def random_seed() -> tuple[int, ...]:
    return tuple(int.from_bytes(os.urandom(4), "little") for _ in range(4))


class Linter:
    def __init__(self, reference: Reference) -> None:
        self.reference, self.task = reference, reference.task
        self.remedies: dict[str, str] = {}  # of survivors
        self.oracle = "the frozen kernel" if self.task.oracle == "frozen" else "reference()"

    def run(self, sizes: Sequence[tuple[Case, int]]) -> Mutated:
        """`sizes`: the bytes of each case. TaskError with the first thing that makes the task unfit; survivors are listed and an error."""
        pairs = [self._pair(case) for case in chosen(sizes)]
        for one, _ in pairs:
            self._sane(one)
        self._not_constant(pairs)
        self._uses_inputs(pairs)
        for pair in pairs:
            if pair[0].case.timed:
                self._mixes(pair)
        return self._report(self._mutants(pairs))

    def _report(self, found: tuple[Mutant, ...]) -> Mutated:
        survivors = [m.name for m in found if not m.killed]
        if not survivors:
            return Mutated(found)
        what = f"a wrong answer would pass: {', '.join(survivors)} (killed in no case)"
        said = "; ".join(dict.fromkeys(self.remedies[name] for name in survivors if name in self.remedies)) or VARY
        return Mutated(found, what, f"task {self.task.name}", f"{said}; {LINT}")

    def _pair(self, case: Case) -> Pair:
        one, other = (self._draw(case, self.reference.inputs(case, random_seed())) for _ in range(2))
        if draws.alike(one.layout, other.layout):
            raise unlike(draws.alike(one.layout, other.layout), case)
        return one, other

    def _draw(self, case: Case, values: Values) -> Draw:
        self.reference.at = case.name
        working, exact = self.reference.both(values)
        return Draw(case, draws.layout_of(self.task, case, values, draws.outputs_of(self.task, working)), values, working, exact)

    # ---------------------------------------------------------------------------------------- sanity

    def _sane(self, one: Draw) -> None:
        """Finite, and right by its own measure: else no kernel can be."""
        self.reference.at = one.case.name
        for name, working in one.working.items():
            if not (tensors.finite(working) and tensors.finite(one.exact[name])):
                step = f"draw inputs for which the answer is finite; {LINT}"
                raise TaskError(f"{self.oracle} returned NaN or infinity in `{name}`", where=self.reference.where(), next_step=step)
        if said := self._wrong(one, one.working):
            step = "compute more precisely at working precision, or say [tolerance] reduction or scale: docs/verdict.md"
            what = f"{self.oracle} at working precision is wrong by the measure that kernels are held to: {said}"
            raise TaskError(what, where=self.reference.where(), next_step=step)

    def _not_constant(self, pairs: Sequence[Pair]) -> None:
        """A case used for correctness may have one answer only (a softmax of one element); a timed case may not, nor all of them."""
        same = [one.case for one, other in pairs if _same(one.exact, other.exact)]
        guilty = [c for c in same if c.timed] or (same if len(same) == len(pairs) else [])
        if guilty:
            raise TaskError(
                f"{self.oracle} returned the same value for two different inputs; a task whose answer is constant cannot be judged",
                where=f"reference.py, case {guilty[0].name}",
                next_step=f"let inputs() draw what makes a difference; {LINT}",
            )

    def _uses_inputs(self, pairs: Sequence[Pair]) -> None:
        """Every tensor that is only read must change the answer in some case. Indices are exchanged together: apart they may not fit."""
        read = [a.name for a in self.task.signature.tensors if not a.written and self.task.argument(a.name).role != "scratch"]
        together = [name for name in read if self.task.argument(name).role in ("index", "meta")]
        groups = [[name] for name in read if name not in together] + ([together] if together else [])
        for names in groups:
            asked = [pair for pair in pairs if any(pair[0].values[name] is not None for name in names)]
            if asked and not any(self._changes(one, other, names) for one, other in self._with_others(asked)):
                said = ", ".join(f"`{name}`" for name in names)
                step = f"let inputs() draw what makes a difference, or take {said} out of the signature; {LINT}"
                what = f"{self.oracle} ignores its input{'s' if len(names) > 1 else ''} {said}"
                raise TaskError(what, where="reference.py", next_step=step)

    def _with_others(self, pairs: Sequence[Pair]) -> Iterator[tuple[Draw, Values]]:
        """Each first draw with the contents of the second, then of new ones: what is drawn from few values may come out the same."""
        yield from ((one, other.values) for one, other in pairs)
        yield from ((one, self.reference.inputs(one.case, random_seed())) for _ in range(AGAIN) for one, _ in pairs)

    def _changes(self, one: Draw, other: Values, names: Sequence[str]) -> bool:
        found = self._draw(one.case, one.values | {name: other[name] for name in names})
        return not _same(one.exact, found.exact)

    def _mixes(self, pair: Pair) -> None:
        """Timed contents mix two draws: the answer must stay finite and of like size."""
        one, other = pair
        rng = torch.Generator(self.reference.device).manual_seed(seed_of(random_seed()))
        found = self._mixed(one, draws.mixed(one.layout, one.values, other.values, rng))
        for name, after in found.exact.items():
            if not after.dtype.is_floating_point or tensors.packed(after.dtype) or not after.numel():
                continue
            size, before = tensors.rms(after), sorted(tensors.rms(draw.exact[name]) for draw in pair)
            if not tensors.finite(after):
                raise self._unmixed(f"`{name}` has NaN or infinity when two draws are mixed per element", one.case)
            if not before[0] / LIKE < size < before[1] * LIKE and size not in before:  # few elements may differ much between two draws
                ratio = size / max(before[0] if size < before[0] else before[1], 1e-300)
                raise self._unmixed(f"`{name}` changes its size {ratio:.3g} times when two draws are mixed per element", one.case)

    def _mixed(self, one: Draw, values: Values) -> Draw:
        try:
            return self._draw(one.case, values)
        except KeepfastError:
            raise
        except (RuntimeError, ValueError, IndexError) as error:
            raise self._unmixed(f"reference() fails when two draws are mixed per element: {error}", one.case) from error

    def _unmixed(self, what: str, case: Case) -> TaskError:
        step = 'say [arguments] NAME = { refresh = "whole" } for inputs with a structure of their own'
        return TaskError(what, where=f"reference.py, case {case.name}", next_step=step)

    # ---------------------------------------------------------------------------------------- mutants

    def _mutants(self, pairs: Sequence[Pair]) -> tuple[Mutant, ...]:
        """A survivor gets a second draw: right by chance, where an answer has few elements, is not let pass."""
        killed: dict[str, Mutant] = {}
        self._hunt(pairs, killed)
        if not all(m.killed for m in killed.values()):
            self._hunt([(other, one) for one, other in pairs], killed)
        return tuple(m if m.killed else replace(m, case="") for m in killed.values())

    def _hunt(self, pairs: Sequence[Pair], killed: dict[str, Mutant]) -> None:
        for draw, name, wrong in self._answers(pairs):
            if killed.get(name, Mutant(name, "", False)).killed:
                continue
            found = bool(self._wrong(draw, wrong))
            if found or not (self.reference.has_compare and name.startswith(mutants.FINE)):  # compare() may forgive what is fine
                killed[name] = Mutant(name, draw.case.name, found)
                self.remedies[name] = "" if found else self._remedy(draw, wrong)

    def _answers(self, pairs: Sequence[Pair]) -> Iterator[tuple[Draw, str, Results]]:
        """Every wrong answer, with the draw that it is an answer to."""
        for one, other in pairs:
            for name, wrong in mutants.mutants(self.task, one, other):
                yield one, name, wrong
        for one, _ in pairs:
            for change in mutants.misread(self.task, one.values):
                exact = self._reread(one.case, change)
                for name, wrong in mutants.answers(one, change, exact) if exact is not None else ():
                    yield one, name, wrong

    def _reread(self, case: Case, change: mutants.Misread) -> Results | None:
        """What the reference says to misread inputs; None where it cannot take them."""
        self.reference.at = case.name
        try:
            return self.reference.both(change.values)[1]
        except (KeepfastError, RuntimeError, ValueError, IndexError, AssertionError):
            return None

    def _remedy(self, draw: Draw, wrong: Results) -> str:
        """The tolerance that would kill a survivor, where one would."""
        if self.reference.has_compare:
            return f"let compare() in reference.py say no to these in case {draw.case.name}"
        own = self.task.tolerance.scale
        scale = next((own * part for part in SCALES if self._wrong(draw, wrong, own * part)), None)
        return VARY if scale is None else f"[tolerance] scale = {scale:.3g} would kill it in case {draw.case.name}"

    def _wrong(self, draw: Draw, results: Results, scale: float | None = None) -> str:
        """What the judge would say to this answer, "" when it would pass; `scale` instead of the task's own."""
        task = self.task if scale is None else replace(self.task, tolerance=replace(self.task.tolerance, scale=scale))
        limits = compare.limits_of(task, draw.case)
        judged = (compare.judge(name, got, draw.working[name], draw.exact[name], limits) for name, got in results.items())
        said = next((j.wrong for j in judged if j.wrong), "")
        if not said or not self.reference.has_compare:
            return said
        return self.reference.compare(draw.case, draw.values, results, draw.exact)


def chosen(sizes: Sequence[tuple[Case, int]]) -> list[Case]:
    """The smallest cases, a timed one among them if any is small enough; the smallest of all when none is."""
    ordered = sorted(sizes, key=lambda each: each[1])
    small = [case for case, size in ordered if size <= CASE_BYTES] or [ordered[0][0]]
    picked = small[:CASES]
    timed = next((case for case in small if case.timed), None)
    return picked if timed is None or timed in picked else [*picked[:-1], timed]


def unlike(name: str, case: Case) -> TaskError:
    what = f"inputs() gave two draws of one case different shapes, strides, dtypes or scalars: `{name}`"
    return TaskError(what, where=f"reference.py, case {case.name}", next_step="let them depend on the case alone, not on rng")


def _same(a: Results, b: Results) -> bool:
    return all(tensors.equal(x, b[name]) for name, x in a.items())
