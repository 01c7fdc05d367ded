"""From what an engine measured to an outcome: passed, a micro-win only, or refused, with a reason for each thing that does not hold.

Owns the rules and their constants, as one pure function: same account, same proof. Must not know any engine, files, clocks or the
ledger. docs/e2e.md says every rule in words; ratios are natural logarithms of time(patched) / time(stock), negative is faster.
"""

from __future__ import annotations

import math

from msgspec import Struct

from keepfast.engine import checks, noise
from keepfast.engine.amdahl import Micro, predict
from keepfast.engine.base import STOCK, Account, Cell
from keepfast.engine.laps import TAIL, Times
from keepfast.engine.noise import Floors
from keepfast.engine.words import more, percent_of, plural
from keepfast.model import Estimate
from keepfast.model.proof import WHY, CellProof, Check, Outcome, Proof, Reason, Why


class Bounds(Struct, frozen=True):
    """What must hold. Shares are of 1: 0.01 is one per cent."""

    worst_cell: float = 0.01  # more time that any one cell may take
    memory: float = 0.01  # more peak memory
    rounds: int = 3  # of each arm and cell, at least
    cells: tuple[str, ...] = ()  # that the task names: all must have been measured
    unshown: tuple[str, ...] = ()  # what the task accepts without evidence: graphs, engagement, outputs, memory
    opponents: tuple[str, ...] = ()  # arms of stock in other configurations: the best of each cell must not be faster
    noise: Floors = Floors()  # stock against stock, where it was measured
    alpha: float = 0.05  # of the two-sided intervals, and one-sided for what a cell may lose


def prove(account: Account, bounds: Bounds, predicted: tuple[Micro, ...] = (), arm: str = "") -> Proof:
    """The proof of one patched arm, the first when none is named. Pure. ValueError for an account without such an arm."""
    arm = arm or next((a for a in account.arms if a != STOCK), "")
    if arm not in account.arms or arm == STOCK:
        raise ValueError(f"no arm `{arm}` to prove; the account has {', '.join(account.arms)}")
    times = Times(account, arm)
    cells, missing = _cells(times, bounds, predicted)
    found = (missing, *checks.all_of(account, arm, bounds.unshown, bounds.memory), *_speed(times, cells, bounds))
    reasons = tuple(r for _, reasons in found for r in reasons)
    outcome = _outcome(reasons)
    lines = tuple(check for check, _ in found if check is not None)
    return Proof(
        outcome=outcome,
        reasons=reasons,
        arm=arm,
        engine=account.engine,
        model=account.model,
        machine=account.machine,
        versions=account.versions,
        settings=account.settings,
        cells=cells,
        whole=_whole(times, bounds),
        worst=max(cells, key=lambda c: c.estimate.high).cell if cells else "",
        checks=lines,
        evidence=evidence(account, lines),
        weakest=weakest(account, lines),
        flags=_flags(cells, account, bounds),
        notes=account.notes,
    )


def _outcome(reasons: tuple[Reason, ...]) -> Outcome:
    """The worst that any reason says."""
    kinds = {WHY[r.why][0] for r in reasons}
    return next((o for o in (Outcome.REFUSED, Outcome.MICRO) if o in kinds), Outcome.PASSED)


# ------------------------------------------------------------------------------------------------ cells

Found = tuple[Check | None, tuple[Reason, ...]]


def _cells(times: Times, bounds: Bounds, predicted: tuple[Micro, ...]) -> tuple[tuple[CellProof, ...], Found]:
    """Every cell with enough rounds; and what is missing."""
    cells, reasons = [], []
    for name in dict.fromkeys((*(c.name for c in times.account.cells), *bounds.cells)):
        values = times.ratios(name)
        if len(values) >= max(1, bounds.rounds):
            cells.append(_cell(times, name, bounds, predicted))
        elif values:
            said = f"{name}: {plural(len(values), 'round')} of both arms, at least {bounds.rounds} are needed"
            reasons.append(Reason(Why.TOO_FEW_ROUNDS, said))
        else:
            reasons.append(_absent(times, name))
    if not any(r.why is Why.CRASHED for r in reasons) and (ended := _ended(times)):
        reasons.append(Reason(Why.CRASHED, ended))
    if not cells and not reasons:
        reasons.append(Reason(Why.CELLS_MISSING, "no cell was measured"))
    state = "failed" if reasons else "ok"
    said = f"{plural(len(cells), 'cell')} measured, contexts up to {max((c.context for c in times.account.cells), default=0)}"
    return tuple(cells), (Check("cells", state, said), tuple(reasons))


def _absent(times: Times, name: str) -> Reason:
    if (times.seconds(name, STOCK) or _ended(times)) and not times.seconds(name, times.arm):
        return Reason(Why.CRASHED, f"{name}: {_ended(times) or f'{times.arm}: no result'}")
    return Reason(Why.CELLS_MISSING, f"{name} was not measured")


def _ended(times: Times) -> str:
    """What the engine says of an arm that did not end well."""
    return next((note for note in times.account.notes if note.startswith(f"{times.arm}: ")), "")


def _cell(times: Times, name: str, bounds: Bounds, predicted: tuple[Micro, ...]) -> CellProof:
    feigned = bounds.noise.of(name)
    measured = noise.estimate(times.ratios(name), STOCK, feigned, bounds.alpha)
    best = _best(times, name, bounds)
    return CellProof(
        cell=name,
        stock_seconds=times.typical(name, STOCK),
        kept_seconds=times.typical(name, times.arm),
        estimate=measured,
        predicted=predict(times, name, measured, predicted),
        graphs=(times.graph_share(name, STOCK), times.graph_share(name, times.arm)),
        guards_only=name.startswith(TAIL),
        best=best,
        best_seconds=times.typical(name, best) if best else 0.0,
        over_best=noise.estimate(list(times.over(name, best).values()), best, feigned, bounds.alpha) if best else None,
    )


def _best(times: Times, cell: str, bounds: Bounds) -> str:
    """The fastest of the opponents and stock, by their medians; "" where no opponent ran."""
    ran = [arm for arm in bounds.opponents if len(times.over(cell, arm)) >= max(1, bounds.rounds)]
    return min((STOCK, *ran), key=lambda arm: times.typical(cell, arm)) if ran else ""


# ------------------------------------------------------------------------------------------------ speed


def _whole(times: Times, bounds: Bounds) -> Estimate | None:
    values = times.whole(bounds.rounds)
    counted = [c.name for c in times.account.cells if c.phase != TAIL]
    return noise.estimate(values, STOCK, bounds.noise.whole(counted), bounds.alpha) if len(values) >= max(1, bounds.rounds) else None


def _speed(times: Times, cells: tuple[CellProof, ...], bounds: Bounds) -> tuple[Found, ...]:
    whole = _whole(times, bounds)
    if whole is None:
        return ()
    losses = tuple(r for c in cells for r in (_loss(times, c, bounds), _beaten(times, c, bounds)) if r is not None)
    said = f"{percent_of(whole)} over all cells, {plural(whole.rounds, 'round')}"
    if whole.low > 0:
        gain: tuple[Reason, ...] = (Reason(Why.SLOWER, f"{said}: slower than stock"),)
    elif whole.high >= 0:
        gain = (Reason(Why.NO_GAIN, f"{said}: the interval holds no change"),)
    else:
        gain = () if losses else (Reason(Why.FASTER, said),)
    return ((Check("speed", "failed" if (losses or whole.high >= 0) else "ok", said), (*gain, *losses)),)


def _loss(times: Times, cell: CellProof, bounds: Bounds) -> Reason | None:
    """Why a cell may be slower than the bound: shown to be, or not shown to stay within. A tail refuses only when it is shown."""
    bound, reach = math.log1p(bounds.worst_cell), noise.reach(times.ratios(cell.cell), bounds.noise.of(cell.cell), bounds.alpha)
    d = cell.estimate.d
    allowed = f"{more(bound)} % is allowed"
    took = f"{cell.cell}: {more(d)} % time [{more(d - reach)}, {more(d + reach)}] in {plural(cell.estimate.rounds, 'round')}"
    if d - reach > bound:
        wins = [c for c in times.account.cells if _wins(times, c, bounds)]
        route = f"; it wins at {', '.join(c.name for c in wins)}: route only those" if wins else ""
        return Reason(Why.CELL_LOSS, f"{took}; {allowed}{route}")
    if d + reach >= bound and not cell.guards_only:
        return Reason(Why.CELL_UNSURE, f"{took}; {allowed}, more rounds would tell")
    return None


def _beaten(times: Times, cell: CellProof, bounds: Bounds) -> Reason | None:
    """Why a cell may be slower than the best configuration without a kernel, by the same bound."""
    if cell.over_best is None or cell.best == STOCK:
        return None
    d, bound = cell.over_best.d, math.log1p(bounds.worst_cell)
    reach = noise.reach(list(times.over(cell.cell, cell.best).values()), bounds.noise.of(cell.cell), bounds.alpha)
    took = f"{cell.cell}: {more(d)} % time [{more(d - reach)}, {more(d + reach)}] against `{cell.best}`, which needs no kernel"
    if d - reach > bound:
        return Reason(Why.CELL_LOSS, f"{took}; {more(bound)} % is allowed")
    if d + reach >= bound and not cell.guards_only:
        return Reason(Why.CELL_UNSURE, f"{took}; {more(bound)} % is allowed, more rounds would tell")
    return None


def _wins(times: Times, cell: Cell, bounds: Bounds) -> bool:
    values = times.ratios(cell.name)
    return len(values) >= max(2, bounds.rounds) and noise.estimate(values, STOCK, bounds.noise.of(cell.name), bounds.alpha).high < 0


# ------------------------------------------------------------------------------------------------ what it is worth


def evidence(account: Account, found: tuple[Check, ...]) -> str:
    """The class: how near to real serving this was measured."""
    base = dict(account.settings).get("class", "engine")
    if checks.on_cpu(account):
        return f"{base} on a CPU"
    shown = any(c.name == "graphs" and c.state == "ok" for c in found)
    return f"{base} with graphs" if shown else f"{base}, graphs not shown"


_LINKS = {
    "outputs": "that the model's outputs stay the same was not shown: only the kernel's own check stands for them",
    "engagement": "that the kernel ran in the engine was not shown",
    "graphs": "that CUDA graphs were on was not shown",
    "memory": "peak memory was not measured",
}


def weakest(account: Account, found: tuple[Check, ...]) -> str:
    """The link of the evidence that gives first."""
    lacking = {c.name for c in found if c.state == "unshown"} - ({"graphs", "memory"} if checks.on_cpu(account) else set())
    first = next((words for name, words in _LINKS.items() if name in lacking), "")
    settings = dict(account.settings)
    if first:
        return first
    if checks.on_cpu(account):
        return "measured on a CPU: says nothing about a GPU, where graphs were not shown"
    if "random weights" in account.model:
        return "the model's weights are random: real routing and attention may differ"
    if settings.get("class", "engine") == "engine":
        return f"one engine on one machine ({account.machine}), without a scheduler or traffic"
    return f"one machine ({account.machine}) and one kind of traffic"


def _flags(cells: tuple[CellProof, ...], account: Account, bounds: Bounds) -> tuple[str, ...]:
    """What a reader should look at, though it refuses nothing."""
    gaps = tuple(f"{c.cell}: {c.predicted.gap}" for c in cells if c.predicted is not None and c.predicted.gap)
    ties = [c.cell for c in cells if not c.guards_only and c.estimate.low <= 0 <= c.estimate.high]
    tied = (f"no gain shown at {', '.join(ties)}: certify would leave those to stock",) if 0 < len(ties) < len(cells) else ()
    compared = {one.cell for one in account.likeness if one.against == STOCK}
    left = [c.name for c in account.cells if c.name not in compared]
    apart = (f"outputs were not compared at {', '.join(left)}",) if compared and left else ()
    bare = [c.cell for c in cells if bounds.opponents and not c.best]
    alone = (f"no opponent ran at {', '.join(bare)}",) if bare else ()
    return (*gaps, *tied, *apart, *alone, *((unknown,) if cells and (unknown := noise.said(account, bounds.noise)) else ()))
