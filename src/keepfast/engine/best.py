"""The best configuration without writing a kernel: which of a library's attentions and compilers is fastest in each cell.

Owns the list of configurations, and the reading of an account as a ranking. Must not know torch.
"""

from __future__ import annotations

import math

from msgspec import Struct
from msgspec.structs import replace

from keepfast.engine.base import STOCK, Account, Cell, Lap
from keepfast.engine.transformers import Arm, Plan
from keepfast.stats import median
from keepfast.task.engine import COMPILE

ATTENTION = ("sdpa", "eager", "sdpa_gqa", "sdpa_gqa_cudnn", "sdpa_gqa_exact", "flex_attention")


class Rank(Struct, frozen=True):
    """One configuration in one cell. `ratio`: seconds of stock over its own, geometric mean over `rounds`; `sd` of the log ratio.

    kl_mean  of its logits against stock's, None where it was not measured
    """

    cell: str
    arm: str
    seconds: float
    ratio: float
    sd: float
    rounds: int
    kl_mean: float | None


def configurations(stock: str = "sdpa") -> tuple[Arm, ...]:
    """Stock, then every attention as it is, with torch.compile, and with its autotuning. What cannot run here drops out by itself."""
    plain = tuple(Arm(name, attention=name) for name in ATTENTION if name != stock)
    compiled = tuple(Arm(f"{name} {mode}", attention=name, compile=mode) for mode in COMPILE for name in ATTENTION)
    return (Arm(STOCK), *plain, *compiled)


def asked(plan: Plan, cell: Cell, arms: tuple[Arm, ...]) -> Plan:
    """The plan for one cell, in which configurations that cannot run are left out."""
    return replace(plan, cells=(cell,), arms=arms, skip=True)


def ranked(account: Account) -> tuple[Rank, ...]:
    """Every arm in every cell, the fastest of a cell first."""
    found = [_rank(account, cell.name, arm) for cell in account.cells for arm in account.arms if _laps(account, cell.name, arm)]
    order = {cell.name: i for i, cell in enumerate(account.cells)}
    return tuple(sorted(found, key=lambda r: (order[r.cell], r.seconds)))


def merged(found: tuple[tuple[Rank, ...], ...]) -> tuple[Rank, ...]:
    """Rankings of one cell from several accounts as one: by the ratio to the stock of each one's own, stock as it was first seen."""
    once: dict[str, Rank] = {}
    for rank in (rank for ranks in found for rank in ranks):
        once.setdefault(rank.arm, rank)
    return tuple(sorted(once.values(), key=lambda r: -r.ratio))


def _laps(account: Account, cell: str, arm: str) -> dict[int, Lap]:
    return {lap.round: lap for lap in account.laps if lap.cell == cell and lap.arm == arm}


def _rank(account: Account, cell: str, arm: str) -> Rank:
    stock, mine = _laps(account, cell, STOCK), _laps(account, cell, arm)
    logs = [math.log(stock[n].seconds / mine[n].seconds) for n in sorted(stock.keys() & mine.keys())]
    mean = sum(logs) / len(logs)
    sd = math.sqrt(sum((x - mean) ** 2 for x in logs) / (len(logs) - 1)) if len(logs) > 1 else 0.0
    alike = next((x.kl_mean for x in account.likeness if (x.cell, x.arm, x.against) == (cell, arm, STOCK)), None)
    return Rank(cell, arm, median([lap.seconds for lap in mine.values()]), math.exp(mean), sd, len(logs), alike)
