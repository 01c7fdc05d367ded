"""Several kernels at once: each alone and all together in one account, and how they act on one another.

Owns the arithmetic of interactions, as one pure function. Must not know engines, files or the ledger.
"""

from __future__ import annotations

from keepfast import stats
from keepfast.engine import noise
from keepfast.engine.amdahl import Micro
from keepfast.engine.base import STOCK, Account
from keepfast.engine.laps import TAIL, TOGETHER, Times
from keepfast.engine.proof import Bounds, prove
from keepfast.engine.words import percent_of, plural, signed
from keepfast.model import Estimate
from keepfast.model.proof import Interaction, Proof, Together

ALL_CELLS = "all cells"


def together_arm(tasks: tuple[str, ...]) -> str:
    return TOGETHER.join(tasks)


def together(account: Account, bounds: Bounds, predicted: tuple[Micro, ...] = ()) -> Together:
    """`account.arms`: stock, each task alone, all together, then opponents. Pure. ValueError for other arms."""
    arms = tuple(arm for arm in account.arms if arm not in bounds.opponents)
    tasks = arms[1:-1]
    if len(tasks) < 2 or arms[0] != STOCK or arms[-1] != together_arm(tasks):
        raise ValueError(f"a campaign has stock, each task alone and all together, not {', '.join(arms)}")
    proofs = tuple(prove(account, bounds, predicted, arm) for arm in arms[1:])
    found = _interactions(account, tasks, bounds)
    slowest, said = _slowest(account, tasks, proofs, bounds)
    return Together(proofs, found, slowest, said)


def _interactions(account: Account, tasks: tuple[str, ...], bounds: Bounds) -> tuple[Interaction, ...]:
    tables = {c.name: _excess(account, tasks, c.name) for c in account.cells if c.phase != TAIL}
    tables = {name: table for name, table in tables.items() if len(table) >= max(1, bounds.rounds)}
    if not tables:
        return ()
    common = sorted(set.intersection(*(set(t) for t in tables.values())))
    whole = {ALL_CELLS: {r: stats.mean([t[r] for t in tables.values()]) for r in common}} if len(common) >= max(1, bounds.rounds) else {}
    return tuple(_interaction(name, list(table.values()), bounds, list(tables)) for name, table in (tables | whole).items())


def _excess(account: Account, tasks: tuple[str, ...], cell: str) -> dict[int, float]:
    """By round: ln(all / stock) less the sum of ln(each / stock)."""
    alone = [_ratios(account, task, cell) for task in tasks]
    all_of = _ratios(account, together_arm(tasks), cell)
    rounds = sorted(set.intersection(set(all_of), *(set(t) for t in alone)))
    return {r: all_of[r] - sum(t[r] for t in alone) for r in rounds}


def _ratios(account: Account, arm: str, cell: str) -> dict[int, float]:
    return Times(account, arm).by_round(cell)


def _interaction(cell: str, values: list[float], bounds: Bounds, cells: list[str]) -> Interaction:
    feigned = bounds.noise.whole(cells) if cell == ALL_CELLS else bounds.noise.of(cell)
    e = noise.estimate(values, "the product of each alone", feigned, bounds.alpha)
    if e.low > 0:
        said = "together they bring less than each alone promises"
    elif e.high < 0:
        said = "together they bring more than each alone promises"
    else:
        said = "no interaction is shown"
    return Interaction(cell, e, f"{said}: {percent_of(e)} against the product, {plural(e.rounds, 'round')}")


def _slowest(account: Account, tasks: tuple[str, ...], proofs: tuple[Proof, ...], bounds: Bounds) -> tuple[str, str]:
    """The task that adds least: to the others where there are two, alone otherwise."""
    found = {task: _added(account, tasks, task, bounds) for task in tasks}
    known = {task: e for task, e in found.items() if e is not None}
    if not known:
        return "", "nothing was measured in enough rounds"
    slowest = max(known, key=lambda task: known[task].d)
    e = known[slowest]
    to = f"to {next(t for t in tasks if t != slowest)}" if len(tasks) == 2 else "alone"
    drop = "; it slows the others down: leave it out" if e.low > 0 else "; nothing is shown to be lost without it" if e.high >= 0 else ""
    failed = [f"{p.arm} {p.outcome.value}" for p in proofs[:-1] if not p.passed]
    apart = f"; by itself: {', '.join(failed)}" if failed else ""
    return slowest, f"slowest link: {slowest} adds {signed(e.d)} % {to} [{signed(e.high)}, {signed(e.low)}]{drop}{apart}"


def _added(account: Account, tasks: tuple[str, ...], task: str, bounds: Bounds) -> Estimate | None:
    least, alone = bounds.rounds, Times(account, task).whole_by_round(bounds.rounds)
    values = list(alone.values())
    if len(tasks) == 2:
        other = Times(account, next(t for t in tasks if t != task)).whole_by_round(least)
        both = Times(account, together_arm(tasks)).whole_by_round(least)
        values = [both[r] - other[r] for r in sorted(both.keys() & other.keys())]
    feigned = bounds.noise.whole([c.name for c in account.cells if c.phase != TAIL])
    return noise.estimate(values, STOCK, feigned, bounds.alpha) if len(values) >= max(1, least) else None
