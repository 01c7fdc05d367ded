"""Can this task be judged at all? Degenerate references, ignored inputs, contents that do not mix, and mutants.

Every mutant is a wrong answer that a lazy or tricky kernel could give; each must fail in at least one case, or the task is
refused before a search begins. The share killed is the task's mutation score. Must not know candidates or clocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from keepfast.errors import TaskError
from keepfast.judge import compare
from keepfast.judge.contents import Library, Sets
from keepfast.judge.oracle_records import Job
from keepfast.judge.reference import Reference
from keepfast.judge.sets import Draw, view
from keepfast.model import Task

if TYPE_CHECKING:
    import numpy as np

WHERE = "reference.py"
LINT = "see docs/tasks.md, lint"


class Mutant(Struct, frozen=True):
    """A wrong answer, and the case that killed it; "" when it survived."""

    name: str
    killed_by: str


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


class Linter:
    def __init__(self, reference: Reference, library: Library, rng: Random) -> None:
        self.reference, self.library, self.rng = reference, library, rng
        self.task: Task = reference.task
        self.oracle = "the frozen kernel" if self.task.oracle == "frozen" else "reference()"

    def run(self) -> Report:
        """Raises TaskError with the first thing that makes the task unfit; survivors among the mutants included."""
        pairs = self._pairs()
        for one, other in pairs:
            self._sane(one, other)
        self._not_constant(pairs)
        self._uses_inputs(pairs)
        self._mixes(pairs)
        report = Report(self._mutants(pairs), len(pairs))
        if report.survivors:
            raise TaskError(
                f"a wrong answer would pass: {', '.join(report.survivors)} (killed in no case)",
                where=f"task {self.task.name}",
                next_step=f"add a case or let inputs() vary more, so that these differ; {LINT}",
            )
        return report

    def _pairs(self) -> list[tuple[Draw, Draw]]:
        jobs = [Job("make", c, tuple(self.rng.getrandbits(32) for _ in range(4))) for c in self.task.cases for _ in range(2)]
        draws = self.reference.draws(jobs)
        return list(zip(draws[::2], draws[1::2], strict=True))

    def _sane(self, one: Draw, other: Draw) -> None:
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
        same = [one.case for one, other in pairs if _same(one.exact, other.exact)]
        guilty = [c for c in same if c.timed] or (same if len(same) == len(pairs) else [])
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
            asked = [(one, _with(one, other, name)) for one, other in pairs if any(s.name == name for s in one.layout.slots)]
            found = self.reference.results([changed for _, changed in asked])
            if asked and all(_same(one.exact, got.exact) for (one, _), got in zip(asked, found, strict=True)):
                step = f"let inputs() draw what makes a difference, or take `{name}` out of the signature; {LINT}"
                raise TaskError(f"{self.oracle} ignores its input `{name}`", where=WHERE, next_step=step)

    def _mixes(self, pairs: Sequence[tuple[Draw, Draw]]) -> None:
        """Timed contents mix two draws: the answer must stay finite and of like size."""
        import numpy as np

        timed = [pair for pair in pairs if pair[0].case.timed]
        mixed = [self._mixed(pair) for pair in timed]
        for (one, _), results in zip(timed, self.reference.results(mixed), strict=True):
            for name, before, after in zip(self.task.signature.results, one.exact, results.exact, strict=True):
                if before.dtype.kind != "f" or before.size == 0:
                    continue
                ratio = float(np.sqrt(np.mean(after**2)) / max(np.sqrt(np.mean(before**2)), 1e-300))
                if not 0.25 < ratio < 4.0:
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
        killed: dict[str, str] = {}
        for one, other in pairs:
            for name, wrong in mutants(self.task, one, other):
                if not killed.get(name):
                    killed[name] = one.case.name if self._fails(one, wrong) else ""
        return tuple(Mutant(name, case) for name, case in killed.items())

    def _fails(self, draw: Draw, wrong: tuple[np.ndarray, ...]) -> bool:
        limits = (compare.reduction_length(self.task, draw.case), self.task.tolerance.scale)
        rows = zip(self.task.signature.results, wrong, draw.working, draw.exact, strict=True)
        failed = any(isinstance(compare.judge(n, g, w, e, limits), compare.Mismatch) for n, g, w, e in rows)
        return failed and not (self.reference.has_compare and not self.reference.compare(draw, self._image(draw, wrong)))

    def _image(self, draw: Draw, results: tuple[np.ndarray, ...]) -> np.ndarray:
        image: np.ndarray = draw.out_image.copy()
        for name, array in zip(self.task.signature.results, results, strict=True):
            view(image, draw.layout.slot(name))[...] = array
        return image


def _with(one: Draw, other: Draw, name: str) -> Draw:
    """Draw `one` with the tensor `name` of `other`."""
    slot, image = one.layout.slot(name), one.in_image.copy()
    image[slot.base : slot.base + slot.span] = other.in_image[slot.base : slot.base + slot.span]
    return replace(one, in_image=image)


def _same(a: Sequence[np.ndarray], b: Sequence[np.ndarray]) -> bool:
    import numpy as np

    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def mutants(task: Task, one: Draw, other: Draw) -> Iterator[tuple[str, tuple[np.ndarray, ...]]]:
    """Wrong answers for draw `one`; each mutates one result and leaves the others right. What comes out right again is no mutant."""
    results = task.signature.results
    for place, name in enumerate(results):
        right = one.working[place]
        for label, change in _changes(task, one, other, place):
            wrong = _changed(change, right)
            if wrong is not None:
                parts = list(one.working)
                parts[place] = wrong
                yield (f"{label} ({name})" if len(results) > 1 else label), tuple(parts)
    if len(results) > 1 and _like(one.working[0], one.working[1]) and not _same(one.working[:1], one.working[1:2]):
        yield "swapped outputs", (one.working[1], one.working[0], *one.working[2:])


Change = Callable[["np.ndarray"], "np.ndarray | None"]


def _changed(change: Change, right: np.ndarray) -> np.ndarray | None:
    """The wrong answer in the type of the right one; None when the change does not apply, or changes nothing."""
    import numpy as np

    with np.errstate(over="ignore"):  # half precision ends at 65504
        wrong = change(right)
        if wrong is None or wrong.shape != right.shape:
            return None
        found: np.ndarray = wrong.astype(right.dtype)
    return None if np.array_equal(found, right) else found


def _like(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype


def _changes(task: Task, one: Draw, other: Draw, place: int) -> Iterator[tuple[str, Change]]:
    import numpy as np

    name = task.signature.results[place]
    yield "zeros", np.zeros_like
    yield "constant", lambda a: np.full_like(a, a.mean()) if a.size > 1 else None
    yield "stale output", lambda a: other.working[place]
    yield "first row only", lambda a: _cut(a, slice(1, None), 0)
    yield "last row missing", lambda a: _cut(a, slice(-1, None), 0)
    yield "last column missing", lambda a: _cut(a, slice(-1, None), a.ndim - 1)
    yield "last tile missing", lambda a: _cut(a, slice(-max(1, a.shape[-1] // 8), None), a.ndim - 1) if a.ndim else None
    yield "shifted by one", lambda a: np.roll(a, 1, axis=-1) if a.ndim and a.shape[-1] > 1 else None
    yield "transposed", lambda a: a.T if a.ndim == 2 and a.shape[0] == a.shape[1] and a.shape[0] > 1 else None
    yield "half precision", lambda a: a.astype(np.float16) if a.dtype in (np.float32, np.float64) else None
    yield "off by one in a thousand", lambda a: a * 1.001 if a.dtype.kind == "f" else None
    for source in task.signature.tensors:
        if any(s.name == source.name for s in one.layout.slots):
            yield f"identity of {source.name}" if source.name != name else "untouched", lambda a, s=source: _initial(one, s.name)  # type: ignore[misc]


def _cut(array: np.ndarray, where: slice, axis: int) -> np.ndarray | None:
    """Zeros at `where` along `axis`; None when that leaves nothing or changes nothing."""
    if array.ndim <= max(axis, 0) or array.shape[axis] < 2:
        return None
    wrong: np.ndarray = array.copy()
    wrong[tuple(where if i == axis else slice(None) for i in range(array.ndim))] = 0
    return wrong


def _initial(draw: Draw, name: str) -> np.ndarray:
    slot = draw.layout.slot(name)
    return view(draw.in_image if slot.region == "in" else draw.out_image, slot)
