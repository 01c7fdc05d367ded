"""The search over declared tunables: Optuna's suggestions, rebuilt from the history at every turn.

Owns which values come next. Holds no state, so a run that was killed goes on as if it had not been: the same history and seed give
the same proposal. Must not know how candidates are built, judged or stored.
"""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct

from keepfast.errors import TaskError, UsageError
from keepfast.model import Experiment, Kind, Proposal, Tunables
from keepfast.propose.base import Brief, settled, structure_hash
from keepfast.propose.ideas import measure
from keepfast.task import tunables

if TYPE_CHECKING:
    import optuna

TRIALS = 24  # for each structure: the tuning budget that every champion gets, once
_LISTED = 1024  # a space of at most so many points is listed, so that its end is known
_ASKS = 16  # suggestions that may be unusable before chance decides
_DRAWS = 2000
_STARTUP = 8  # random trials before the sampler trusts what it has seen

Point = tuple[int, ...]  # one index for each axis


class SearchProposer(Struct, frozen=True):
    """Tunables by TPE, or by chance as its control arm (`sampler="random"`).

    Proposes nothing for a task without tunables, for a structure whose `trials` are spent, or when no values are left.
    """

    sampler: str = "tpe"
    trials: int = TRIALS

    def __post_init__(self) -> None:
        if self.sampler not in ("tpe", "random"):
            raise UsageError(f"unknown sampler `{self.sampler}`", next_step="known: tpe, random")

    @property
    def name(self) -> str:
        return "search" if self.sampler == "tpe" else self.sampler

    def propose(self, brief: Brief) -> Proposal | None:
        space = _space(brief)
        if space is None:
            return None
        known = _known(brief, space)
        if sum(self._spent(t.experiment) for t in known.trials) >= self.trials:
            return None
        point = self._next(brief, known)
        return None if point is None else _proposal(known, point, self.name)

    def _spent(self, trial: Experiment) -> bool:
        return trial.proposer == self.name and trial.verdict.kind is not Kind.VOID

    def _next(self, brief: Brief, known: _Known) -> Point | None:
        left = known.left()
        if left is not None and not left:
            return None
        chance = random.Random(_seed(brief, known))
        rest = _mixed(left, chance) if left is not None else _drawn(known, chance)
        with _quiet():
            suggested = _suggested(_study(self.sampler, brief, known), known.axes)
            return next(filter(known.free, itertools.chain(suggested, rest)), None)


# ------------------------------------------------------------------------------------------------ what is known


class _Axis(Struct, frozen=True):
    """One tunable. Numbers are in rising order, so that neighbours are alike."""

    name: str
    choices: tuple[tunables.Value, ...]
    ordered: bool

    def index(self, value: tunables.Value) -> int | None:
        return next((i for i, c in enumerate(self.choices) if type(c) is type(value) and c == value), None)


class _Trial(Struct, frozen=True):
    point: Point
    experiment: Experiment


class _Known(Struct, frozen=True):
    """The space of the champion's structure and what was tried in it."""

    space: tunables.Space
    axes: tuple[_Axis, ...]
    structure: str
    champion: Point
    trials: tuple[_Trial, ...]
    taken: frozenset[Point]

    def values(self, point: Point) -> tunables.Pairs:
        return tuple((a.name, a.choices[i]) for a, i in zip(self.axes, point, strict=True))

    def free(self, point: Point) -> bool:
        """Not tried, not the champion's, and within the constraints."""
        return point not in self.taken and self.space.valid(self.values(point)) is None

    def left(self) -> list[Point] | None:
        """All free points of a small space; None for a large one."""
        if self.space.size > _LISTED:
            return None
        return [p for p in itertools.product(*(range(len(a.choices)) for a in self.axes)) if self.free(p)]


def _space(brief: Brief) -> tunables.Space | None:
    """The champion's tunables; None when it has none, or a text that a candidate broke."""
    file = next((f for f in brief.champion.files if f.path == brief.task.tunables), None)
    try:
        space = tunables.parse(file.data.decode("utf-8")) if file else None
    except (TaskError, UnicodeDecodeError):
        return None
    return space if space and space.names else None


def _known(brief: Brief, space: tunables.Space) -> _Known:
    axes = tuple(_axis(name, space.choices(name)) for name in space.names)
    structure = structure_hash(brief.champion.files, brief.task.tunables)
    placed = ((_point(axes, e.tunables), e) for e in brief.history if e.structure == structure)
    trials = tuple(_Trial(point, e) for point, e in placed if point is not None)
    attempts: dict[Point, list[Experiment]] = {}
    for trial in trials:
        attempts.setdefault(trial.point, []).append(trial.experiment)
    champion = _point(axes, space.values) or ()
    taken = frozenset(p for p, tried in attempts.items() if settled(tried)) | {champion}
    return _Known(space, axes, structure, champion, trials, taken)


def _point(axes: tuple[_Axis, ...], values: tunables.Pairs) -> Point | None:
    """Where values lie in the space; None for values that leave one out or are not declared."""
    given = dict(values)
    found = [a.index(given[a.name]) for a in axes if a.name in given]
    point = tuple(i for i in found if i is not None)
    return point if len(point) == len(axes) else None


def _axis(name: str, choices: tuple[tunables.Value, ...]) -> _Axis:
    numbers = [c for c in choices if isinstance(c, (int, float)) and not isinstance(c, bool)]
    ordered = len(numbers) == len(choices)
    return _Axis(name, tuple(sorted(numbers)) if ordered else choices, ordered)


def totals(history: tuple[Experiment, ...]) -> dict[int, float]:
    """Log-ratio against the start of every keep, by experiment number, 0.0 for the start: sums of gains, to guide a search only."""
    found = {0: 0.0}
    for e in history:
        if e.verdict.kept:
            found[e.n] = found.get(e.parent, 0.0) + (measure(e.verdict) or 0.0)
    return found


def _value(trial: Experiment, total: dict[int, float]) -> float | None:
    """What the study is told: the total of the champion of the time plus the measured d; None for a failed trial."""
    if trial.verdict.kept:
        return total[trial.n]
    d = measure(trial.verdict)
    return None if d is None else total.get(trial.parent, 0.0) + d


# ------------------------------------------------------------------------------------------------ what comes next


def _seed(brief: Brief, known: _Known) -> int:
    text = f"{brief.seed} {len(brief.history)} {known.structure}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little")


def _mixed(points: list[Point], chance: random.Random) -> list[Point]:
    return chance.sample(points, len(points))


def _drawn(known: _Known, chance: random.Random) -> Iterator[Point]:
    """Points of a large space by chance, then the champion's neighbours: where few points are valid, those often are."""
    for _ in range(_DRAWS):
        yield tuple(chance.randrange(len(a.choices)) for a in known.axes)
    for k, axis in enumerate(known.axes):
        for i in range(len(axis.choices)):
            yield (*known.champion[:k], i, *known.champion[k + 1 :])


def _study(sampler: str, brief: Brief, known: _Known) -> optuna.Study:
    """A study in memory that has been told everything: the champion, and each trial as a value or as failed."""
    import optuna

    seed = _seed(brief, known)
    body = optuna.samplers.RandomSampler(seed) if sampler == "random" else optuna.samplers.TPESampler(n_startup_trials=_STARTUP, seed=seed)
    study = optuna.create_study(sampler=body, direction="minimize")
    total = totals(brief.history)
    _tell(study, known, known.champion, total.get(brief.champion.n, 0.0))
    for trial in known.trials:
        if trial.experiment.verdict.kind is not Kind.VOID and trial.experiment.n != brief.champion.n:
            _tell(study, known, trial.point, _value(trial.experiment, total))
    return study


def _tell(study: optuna.Study, known: _Known, point: Point, value: float | None) -> None:
    import optuna

    state = optuna.trial.TrialState.FAIL if value is None else optuna.trial.TrialState.COMPLETE
    params = {a.name: i for a, i in zip(known.axes, point, strict=True)}
    study.add_trial(optuna.trial.create_trial(state=state, value=value, params=params, distributions=_distributions(known.axes)))


def _distributions(axes: tuple[_Axis, ...]) -> dict[str, optuna.distributions.BaseDistribution]:
    from optuna.distributions import CategoricalDistribution, IntDistribution

    return {a.name: IntDistribution(0, len(a.choices) - 1) if a.ordered else CategoricalDistribution(range(len(a.choices))) for a in axes}


def _suggested(study: optuna.Study, axes: tuple[_Axis, ...]) -> Iterator[Point]:
    from optuna.trial import TrialState

    for _ in range(_ASKS):
        trial = study.ask(_distributions(axes))
        yield tuple(trial.params[a.name] for a in axes)
        study.tell(trial, state=TrialState.FAIL)  # asked for another one: this one was of no use


@contextmanager
def _quiet() -> Iterator[None]:
    """Optuna announces every study on stderr; its own level is put back afterwards."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)


def _proposal(known: _Known, point: Point, name: str) -> Proposal:
    new, old = known.values(point), dict(known.values(known.champion))
    said = ((n, tunables.literal(old[n]), tunables.literal(v)) for n, v in new)
    title = ", ".join(f"{n} {was} -> {now}" for n, was, now in said if was != now)
    return Proposal(title, name, Tunables(new))
