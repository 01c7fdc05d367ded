"""Can this task be judged at all? Degenerate references, ignored inputs, contents that do not mix, and mutants.

Every mutant is a wrong answer that a lazy or tricky kernel could give; each must fail in at least one case, or the task is
refused before a search begins. The share killed is the task's mutation score. Must not know candidates or clocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from keepfast.errors import TaskError
from keepfast.judge import compare
from keepfast.judge.contents import Library, Sets
from keepfast.judge.mutants import PRECISE, Misread, misread, mutants, same, with_tensor
from keepfast.judge.oracle_records import Job
from keepfast.judge.reference import Reference
from keepfast.judge.sets import Draw, view
from keepfast.model import Task

if TYPE_CHECKING:
    import numpy as np

WHERE = "reference.py"
AGAIN = 7  # more draws before an input is said to be ignored: what is drawn from few values may come out the same
LIKE = 4.0  # mixing may change the RMS of an answer so many times
REREAD = 3  # cases, the smallest, on which misread inputs are tried: each costs a run of the reference
SCALES = tuple(2.0**-n for n in range(1, 14))  # of the task's own tolerance, in which a survivor is looked for
VARY = "add a case or let inputs() vary more, so that these differ"
LINT = "see docs/tasks.md, lint"
Wrong = tuple["np.ndarray", ...]


class Mutant(Struct, frozen=True):
    """A wrong answer, and the case that killed it; "" when it survived, and then `remedy` says what would kill it."""

    name: str
    killed_by: str
    remedy: str = ""


class Report(Struct, frozen=True):
    mutants: tuple[Mutant, ...]
    cases: int

    @property
    def survivors(self) -> tuple[str, ...]:
        return tuple(m.name for m in self.mutants if not m.killed_by)

    @property
    def score(self) -> str:
        cases = f"{self.cases} case{'s' if self.cases > 1 else ''}"
        return f"{len(self.mutants) - len(self.survivors)} of {len(self.mutants)} mutants killed in {cases}"

    def refuse(self, task: Task) -> None:
        """TaskError when a mutant survived."""
        if self.survivors:
            said = "; ".join(dict.fromkeys(m.remedy for m in self.mutants if not m.killed_by and m.remedy))
            raise TaskError(
                f"a wrong answer would pass: {', '.join(self.survivors)} (killed in no case)",
                where=f"task {task.name}",
                next_step=f"{said or VARY}; {LINT}",
            )


class Linter:
    def __init__(self, reference: Reference, library: Library, rng: Random) -> None:
        self.reference, self.library, self.rng = reference, library, rng
        self.task: Task = reference.task
        self.oracle = "the frozen kernel" if self.task.oracle == "frozen" else "reference()"

    def run(self) -> Report:
        """Raises TaskError with the first thing that makes the task unfit; survivors among the mutants included."""
        pairs = self._pairs()
        for one, _ in pairs:
            self._sane(one)
        self._not_constant(pairs)
        self._uses_inputs(pairs)
        self._mixes(pairs)
        report = Report(self._mutants(pairs), len(pairs))
        report.refuse(self.task)
        return report

    def _pairs(self) -> list[tuple[Draw, Draw]]:
        jobs = [Job("make", c, tuple(self.rng.getrandbits(32) for _ in range(4))) for c in self.task.cases for _ in range(2)]
        draws = self.reference.draws(jobs)
        return list(zip(draws[::2], draws[1::2], strict=True))

    def _sane(self, one: Draw) -> None:
        import numpy as np

        where = f"{WHERE}, case {one.case.name}"
        for name, working, exact in zip(self.task.signature.results, one.working, one.exact, strict=True):
            slot = one.layout.slot(name)
            if working.shape != slot.shape or str(working.dtype) != slot.dtype:
                what = f"`{name}` is {slot.dtype}{list(slot.shape)}, reference() returned {working.dtype}{list(working.shape)}"
                raise TaskError(what, where=where, next_step="return the new values of a written argument in its own shape and dtype")
            if working.dtype.kind == "f" and not (np.isfinite(working).all() and np.isfinite(exact).all()):
                raise TaskError(
                    f"{self.oracle} returned NaN or infinity in `{name}`",
                    where=where,
                    next_step=f"draw inputs for which the answer is finite; {LINT}",
                )

    def _not_constant(self, pairs: Sequence[tuple[Draw, Draw]]) -> None:
        """A case used for correctness may have one answer only (a softmax of one element); a timed case may not, nor all of them."""
        alike = [one.case for one, other in pairs if same(one.exact, other.exact)]
        guilty = [c for c in alike if c.timed] or (alike if len(alike) == len(pairs) else [])
        if guilty:
            raise TaskError(
                f"{self.oracle} returned the same value for two different inputs; a task whose answer is constant cannot be judged",
                where=f"{WHERE}, case {guilty[0].name}",
                next_step=f"let inputs() draw what makes a difference; {LINT}",
            )

    def _uses_inputs(self, pairs: Sequence[tuple[Draw, Draw]]) -> None:
        """Every tensor that is only read must change the answer in some case."""
        read = [a.name for a in self.task.signature.tensors if not a.written]
        for name in read:
            given = any(slot.name == name for one, _ in pairs for slot in one.layout.slots)
            if given and not any(self._changes(name, pairs if n == 0 else self._pairs()) for n in range(1 + AGAIN)):
                step = f"let inputs() draw what makes a difference, or take `{name}` out of the signature; {LINT}"
                raise TaskError(f"{self.oracle} ignores its input `{name}`", where=WHERE, next_step=step)

    def _changes(self, name: str, pairs: Sequence[tuple[Draw, Draw]]) -> bool:
        """Whether an answer changes when this tensor alone comes from the second draw."""
        asked = [(one, with_tensor(one, other, name)) for one, other in pairs if any(slot.name == name for slot in one.layout.slots)]
        found = self.reference.results([changed for _, changed in asked])
        return not all(same(one.exact, got.exact) for (one, _), got in zip(asked, found, strict=True))

    def _mixes(self, pairs: Sequence[tuple[Draw, Draw]]) -> None:
        """Timed contents mix two draws: the answer must stay finite and of like size."""
        import numpy as np

        def rms(values: Any) -> float:
            return float(np.sqrt(np.mean(values**2)))

        timed = [pair for pair in pairs if pair[0].case.timed]
        mixed = [self._mixed(pair) for pair in timed]
        for (one, other), results in zip(timed, self.reference.results(mixed), strict=True):
            exact = zip(self.task.signature.results, one.exact, other.exact, results.exact, strict=True)
            for name, before, twin, after in exact:
                if before.dtype.kind != "f" or before.size == 0:
                    continue
                size, sizes = rms(after), sorted((rms(before), rms(twin)))
                if not sizes[0] / LIKE < size < sizes[1] * LIKE and size not in sizes:  # few elements may differ much between two draws
                    ratio = size / max(sizes[0] if size < sizes[0] else sizes[1], 1e-300)
                    raise TaskError(
                        f"`{name}` changes its size {ratio:.3g} times when two draws are mixed per element",
                        where=f"{WHERE}, case {one.case.name}",
                        next_step='say [arguments] NAME = { refresh = "whole" } for inputs with a structure of their own',
                    )

    def _mixed(self, pair: tuple[Draw, Draw]) -> Draw:
        sets = Sets(self.library, self.task, pair, 1)
        try:
            sets.refresh(self.rng)
            return sets.drawn(0)[0]
        finally:
            sets.close()

    def _mutants(self, pairs: Sequence[tuple[Draw, Draw]]) -> tuple[Mutant, ...]:
        """A survivor gets a second draw: right by chance, where an answer has few elements, is not let pass."""
        found: dict[str, Mutant] = {}
        self._hunt(pairs, found)
        if not all(m.killed_by for m in found.values()):
            self._hunt([(other, one) for one, other in pairs], found)
        return tuple(found.values())

    def _hunt(self, pairs: Sequence[tuple[Draw, Draw]], found: dict[str, Mutant]) -> None:
        for draw, name, wrong in self._wrong(pairs):
            if name in found and found[name].killed_by:
                continue
            killed = self._fails(draw, wrong, self.task.tolerance.scale)
            found[name] = Mutant(name, draw.case.name if killed else "", "" if killed else self._remedy(draw, wrong))

    def _wrong(self, pairs: Sequence[tuple[Draw, Draw]]) -> Iterator[tuple[Draw, str, Wrong]]:
        """Every wrong answer, with the draw that it is an answer to."""
        for one, other in pairs:
            for name, wrong in mutants(self.task, one, other):
                yield one, name, wrong
        smallest = sorted((one for one, _ in pairs), key=lambda draw: draw.layout.in_bytes + draw.layout.out_bytes)[:REREAD]
        asked = [(draw, change) for draw in smallest for change in misread(self.task, draw)]
        floor = [change for _, change in asked if "below the floor" in change.name]
        if self.task.rules.precision_floor and not floor:
            raise self._no_floor()
        for (draw, change), exact in zip(asked, self._reread([change for _, change in asked]), strict=True):
            for name, wrong in _answers(self.task, draw, change, exact):
                yield draw, name, wrong

    def _no_floor(self) -> TaskError:
        what = f'`precision_floor = "{self.task.rules.precision_floor}"` cannot be told here: no input has more bits than what is below it'
        return TaskError(what, where="task.toml", next_step=f"Take it out of [rules], or name the floor that the inputs have; {LINT}")

    def _reread(self, changes: Sequence[Misread]) -> list[Wrong | None]:
        """What the reference says to misread inputs; None where it cannot take them."""
        try:
            return [found.exact for found in self.reference.results([change.draw for change in changes])]
        except TaskError:
            return [self._one(change) for change in changes]

    def _one(self, change: Misread) -> Wrong | None:
        try:
            return self.reference.results([change.draw])[0].exact
        except TaskError:
            return None

    def _fails(self, draw: Draw, wrong: Wrong, scale: float) -> bool:
        limits = (compare.reduction_length(self.task, draw.case), scale)
        rows = zip(self.task.signature.results, wrong, draw.working, draw.exact, strict=True)
        failed = any(isinstance(compare.judge(n, g, w, e, limits), compare.Mismatch) for n, g, w, e in rows)
        return failed and not (self.reference.has_compare and not self.reference.compare(draw, self._image(draw, wrong)))

    def _remedy(self, draw: Draw, wrong: Wrong) -> str:
        """The tolerance that would kill a survivor, where one would."""
        if self.reference.has_compare:
            return f"let compare() in reference.py say no to these in case {draw.case.name}"
        own = self.task.tolerance.scale
        scale = next((own * part for part in SCALES if self._fails(draw, wrong, own * part)), None)
        return VARY if scale is None else f"[tolerance] scale = {scale:.3g} would kill it in case {draw.case.name}"

    def _image(self, draw: Draw, results: tuple[np.ndarray, ...]) -> np.ndarray:
        image: np.ndarray = draw.out_image.copy()
        for name, array in zip(self.task.signature.results, results, strict=True):
            view(image, draw.layout.slot(name))[...] = array
        return image


def _answers(task: Task, draw: Draw, change: Misread, exact: Wrong | None) -> Iterator[tuple[str, Wrong]]:
    """What a kernel that misreads its inputs answers, in the types of the right results. What comes out right again is no mutant."""
    if exact is None or same(exact, draw.exact):
        return
    results = task.signature.results
    made = _typed(exact, draw.working)
    if not change.fine:
        yield change.name, made
        return
    for place, name in enumerate(results):
        if str(made[place].dtype) in PRECISE and not same((exact[place],), (draw.exact[place],)):
            label = f"{change.name} ({name})" if len(results) > 1 else change.name
            yield label, (*draw.working[:place], made[place], *draw.working[place + 1 :])


def _typed(found: Wrong, right: Wrong) -> Wrong:
    import numpy as np

    with np.errstate(all="ignore"):  # what is misread may overflow, or divide by zero
        return tuple(a.astype(b.dtype) for a, b in zip(found, right, strict=True))
