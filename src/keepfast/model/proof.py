"""What is known of a kernel in a real engine: cells, checks, the outcome and why. `engine/proof.py` makes it, `report/e2e.py` shows it.

Data only. Owns the closed lists of outcomes and reasons. Ratios are natural logarithms of time(patched) / time(stock): negative is faster.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from keepfast.model.verdict import Estimate


class Outcome(StrEnum):
    PASSED = "passed"
    MICRO = "micro-win only"  # faster alone, not shown to be faster in the engine: stays on the branch, not shipped
    REFUSED = "refused"


class Why(StrEnum):
    """The closed list of reasons; `WHY` says each in words."""

    FASTER = "faster-end-to-end"
    NO_GAIN = "no-gain"
    CELL_UNSURE = "cell-unsure"
    SLOWER = "slower"
    CELL_LOSS = "cell-loss"
    GRAPHS_OFF = "graphs-off"
    GRAPHS_DIFFER = "graphs-differ"
    NOT_ENGAGED = "not-engaged"
    PARTLY_ENGAGED = "partly-engaged"
    STOCK_PATCHED = "stock-patched"
    OUTPUTS_DIFFER = "outputs-differ"
    MEMORY = "memory"
    CRASHED = "crashed"
    CELLS_MISSING = "cells-missing"
    TOO_FEW_ROUNDS = "too-few-rounds"
    NOT_SHOWN = "not-shown"


WHY: dict[Why, tuple[Outcome, str]] = {
    Why.FASTER: (Outcome.PASSED, "faster in the engine, and slower in no cell"),
    Why.NO_GAIN: (Outcome.MICRO, "no gain is shown in the engine: a micro-win, not shipped"),
    Why.CELL_UNSURE: (Outcome.MICRO, "a cell is not shown to stay within what it may lose"),
    Why.SLOWER: (Outcome.REFUSED, "slower in the engine than stock"),
    Why.CELL_LOSS: (Outcome.REFUSED, "a cell got slower than it may"),
    Why.GRAPHS_OFF: (Outcome.REFUSED, "an arm did not run inside CUDA graphs"),
    Why.GRAPHS_DIFFER: (Outcome.REFUSED, "the arms did not run inside CUDA graphs to the same extent"),
    Why.NOT_ENGAGED: (Outcome.REFUSED, "the kernel never ran in the engine"),
    Why.PARTLY_ENGAGED: (Outcome.REFUSED, "the kernel ran less often than the model has uses for it"),
    Why.STOCK_PATCHED: (Outcome.REFUSED, "the kernel ran in the stock arm too"),
    Why.OUTPUTS_DIFFER: (Outcome.REFUSED, "the model's outputs are further from stock than rounding explains"),
    Why.MEMORY: (Outcome.REFUSED, "needs more memory than it may"),
    Why.CRASHED: (Outcome.REFUSED, "the engine did not end well with the kernel in it"),
    Why.CELLS_MISSING: (Outcome.REFUSED, "a cell that the task names was not measured"),
    Why.TOO_FEW_ROUNDS: (Outcome.REFUSED, "too few rounds for an interval"),
    Why.NOT_SHOWN: (Outcome.REFUSED, "the engine did not show something that a pass needs"),
}


class Check(Struct, frozen=True):
    """One thing that must hold. `said` is the sentence with the numbers."""

    name: str  # graphs | engagement | outputs | memory | cells | speed
    state: str  # ok | failed | unshown
    said: str


class Reason(Struct, frozen=True):
    why: Why
    said: str  # one sentence, with the cell and the numbers


class Predicted(Struct, frozen=True):
    """Amdahl in one cell: the share of a stock step that the kernel replaces, and the step's log-ratio that its gain alone would give."""

    share: float
    d: float
    low: float
    high: float
    gap: str = ""  # in words, where the measured gain lies outside


class CellProof(Struct, frozen=True):
    """Seconds are medians over rounds, of one decode step or one prefill."""

    cell: str
    stock_seconds: float
    kept_seconds: float
    estimate: Estimate
    predicted: Predicted | None = None
    graphs: tuple[float | None, float | None] = (None, None)  # stock, patched
    guards_only: bool = False  # a tail: it can refuse, and is no part of the whole
    best: str = ""  # the fastest stock configuration of those that were asked for
    best_seconds: float = 0.0
    over_best: Estimate | None = None  # the kernel against it


class Proof(Struct, frozen=True):
    """`whole`: the mean of the log-ratios of all cells but tails, round by round. None where an arm did not run."""

    outcome: Outcome
    reasons: tuple[Reason, ...]
    arm: str
    engine: str
    model: str
    machine: str
    versions: tuple[tuple[str, str], ...]
    settings: tuple[tuple[str, str], ...]
    cells: tuple[CellProof, ...]
    whole: Estimate | None
    worst: str  # cell
    checks: tuple[Check, ...]
    evidence: str  # class, e.g. "engine with graphs"
    weakest: str  # link
    flags: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    schema: str = "keepfast.proof/1"

    @property
    def passed(self) -> bool:
        return self.outcome is Outcome.PASSED


class Interaction(Struct, frozen=True):
    """ln time(all together) less the sum of each alone: above 0, the gains do not add up."""

    cell: str  # or "all cells"
    estimate: Estimate
    said: str


class Together(Struct, frozen=True):
    """Several kernels at once: each alone and all together, each proven; how they act on one another; which helps least."""

    proofs: tuple[Proof, ...]  # each task alone, then all
    interactions: tuple[Interaction, ...]
    slowest: str  # the task that brings least
    said: str
    schema: str = "keepfast.together/1"

    @property
    def outcome(self) -> Outcome:
        """That of all together: it is what would be shipped."""
        return self.proofs[-1].outcome
