"""What a judge finds: the closed lists of kinds, reasons and phases, rounds, estimates, verdicts, calibration. Data only."""

from __future__ import annotations

import math
from enum import StrEnum

from msgspec import Struct


class Kind(StrEnum):
    KEEP = "keep"
    REVERT = "revert"
    REJECT = "reject"
    SUSPECT = "suspect"
    VOID = "void"


class Reason(StrEnum):
    """The closed list of reason codes; `SENTENCES` says each in words."""

    START = "start"
    FASTER = "faster"
    TRIED = "tried"
    SLOWER = "slower"
    NO_GAIN = "no-gain"
    AMBIGUOUS = "ambiguous"
    NOT_CONFIRMED = "not-confirmed"
    CASE_LOSS = "case-loss"
    SAME_CODE = "same-code"
    SEEN = "seen"
    GUARD = "guard"
    TOO_BIG = "too-big"
    DOES_NOT_APPLY = "does-not-apply"
    NO_CHANGE = "no-change"
    BAD_TUNABLES = "bad-tunables"
    LANGUAGE = "language"
    RULE = "rule"
    GRAPHS = "cuda-graphs"
    NOT_A_PLAN = "not-a-plan"
    UNSTABLE_PLAN = "unstable-plan"
    BUILD = "does-not-compile"
    BUILD_LIMIT = "build-limit"
    LOAD = "does-not-load"
    CRASH = "crash"
    HANG = "hang"
    WRONG = "wrong"
    STATEFUL = "stateful"
    UNSTABLE = "unstable"
    LATE = "late"
    OUT_OF_BOUNDS = "out-of-bounds"
    RETURN_CODE = "return-code"
    CORES = "cores"
    LIMITS = "limits"
    PROTOCOL = "protocol"
    TOO_FAST = "too-fast"
    INTERFERENCE = "interference"
    MACHINE = "machine"
    CLEARED = "cleared"


SENTENCES: dict[Reason, tuple[Kind, str]] = {
    Reason.START: (Kind.KEEP, "the kernel the run began with"),
    Reason.FASTER: (Kind.KEEP, "faster in the confirm rounds, which alone are claimed"),
    Reason.CLEARED: (Kind.KEEP, "a human cleared the suspicion"),
    Reason.TRIED: (Kind.REVERT, "only tried: one screening round, no verdict"),
    Reason.SLOWER: (Kind.REVERT, "slower in the screening round"),
    Reason.NO_GAIN: (Kind.REVERT, "no measurable gain"),
    Reason.AMBIGUOUS: (Kind.REVERT, "the interval spans the margin: not proven faster"),
    Reason.NOT_CONFIRMED: (Kind.REVERT, "looked faster, was not confirmed in fresh rounds"),
    Reason.CASE_LOSS: (Kind.REVERT, "one case got slower than it may, in total"),
    Reason.SAME_CODE: (Kind.REVERT, "compiles to code that was judged before"),
    Reason.SEEN: (Kind.REVERT, "the same files were judged before"),
    Reason.NO_CHANGE: (Kind.REVERT, "changes nothing"),
    Reason.GUARD: (Kind.REJECT, "touches what it may not touch"),
    Reason.TOO_BIG: (Kind.REJECT, "larger than a change may be"),
    Reason.DOES_NOT_APPLY: (Kind.REJECT, "the patch does not apply to the champion"),
    Reason.BAD_TUNABLES: (Kind.REJECT, "a tunable outside its declared values or constraints"),
    Reason.LANGUAGE: (Kind.REJECT, "not in the language asked for"),
    Reason.RULE: (Kind.REJECT, "breaks a rule of the task"),
    Reason.GRAPHS: (Kind.REJECT, "cannot run inside a CUDA graph"),
    Reason.NOT_A_PLAN: (Kind.REJECT, "does something that a launch plan cannot say"),
    Reason.UNSTABLE_PLAN: (Kind.REJECT, "launches something else the second time"),
    Reason.BUILD: (Kind.REJECT, "does not compile"),
    Reason.BUILD_LIMIT: (Kind.REJECT, "compiling took too long or too much"),
    Reason.LOAD: (Kind.REJECT, "does not load"),
    Reason.CRASH: (Kind.REJECT, "crashed"),
    Reason.HANG: (Kind.REJECT, "did not come back"),
    Reason.WRONG: (Kind.REJECT, "wrong result"),
    Reason.STATEFUL: (Kind.REJECT, "the answer depends on earlier calls"),
    Reason.UNSTABLE: (Kind.REJECT, "varies from call to call more than rounding can"),
    Reason.LATE: (Kind.REJECT, "the result was still being written after the call returned"),
    Reason.OUT_OF_BOUNDS: (Kind.REJECT, "wrote outside what the signature lets it write"),
    Reason.RETURN_CODE: (Kind.REJECT, "returned an error code"),
    Reason.CORES: (Kind.REJECT, "used more cores than `threads` allows"),
    Reason.LIMITS: (Kind.REJECT, "asked for more memory, threads or files than it may have"),
    Reason.PROTOCOL: (Kind.REJECT, "spoke on the judge's channel"),
    Reason.TOO_FAST: (Kind.SUSPECT, "faster than this machine's measured limit allows"),
    Reason.INTERFERENCE: (Kind.SUSPECT, "the two ways of timing disagree"),
    Reason.MACHINE: (Kind.VOID, "the machine was not fit to judge"),
}


class Phase(StrEnum):
    SCREEN = "screen"
    TEST = "test"
    CONFIRM = "confirm"
    CASES = "cases"  # six more rounds for cases that the confirm left undecided
    DIRECT = "direct"  # champion against original or baseline
    CALIBRATE = "calibrate"
    LAYOUT = "layout"


class CaseRound(Struct, frozen=True):
    """One case in one round: raw samples of one fresh pair of processes."""

    case: str
    d: float  # median over blocks of ln(subject / opponent)
    subject_ns: float  # median time of one call
    opponent_ns: float
    blocks: tuple[float, ...] = ()  # ln ratio per block


class Round(Struct, frozen=True):
    phase: Phase
    d: float  # composite over normalised weights
    cases: tuple[CaseRound, ...]
    sentinel_ns: float = 0.0
    seconds: float = 0.0


class Estimate(Struct, frozen=True):
    """A log-ratio with its spread. `low` and `high` bound it at 95 % (two-sided) unless said otherwise."""

    d: float
    low: float
    high: float
    sd: float  # between rounds
    rounds: int
    opponent: str  # "experiment 2", "start", "baseline numpy"

    @property
    def speedup(self) -> float:
        return math.exp(-self.d)

    @property
    def speedup_low(self) -> float:
        return math.exp(-self.high)

    @property
    def speedup_high(self) -> float:
        return math.exp(-self.low)


class CaseTime(Struct, frozen=True):
    case: str
    estimate: Estimate
    subject_ns: float
    opponent_ns: float
    limit_ns: float | None = None  # physical limit on this machine, None when the task gives none


class Fact(Struct, frozen=True):
    name: str
    value: str


class Rung(Struct, frozen=True):
    name: str  # guard | build | correct | time | ...
    ok: bool
    seconds: float
    facts: tuple[Fact, ...] = ()


class Verdict(Struct, frozen=True):
    kind: Kind
    reason: Reason
    detail: str = ""  # one line, escaped where shown
    rungs: tuple[Rung, ...] = ()
    rounds: tuple[Round, ...] = ()
    gain: Estimate | None = None  # the claim: confirm rounds only
    screen: float | None = None  # log-ratio of the screening round
    test: Estimate | None = None
    cases: tuple[CaseTime, ...] = ()
    mde: float | None = None  # smallest gain this evaluation could see (log-ratio, positive)
    false_keep: float | None = None  # expected chance that a no-op is kept here
    code: str = ""  # hash of the loadable sections
    walls: str = ""  # walls | partial | none
    seconds: float = 0.0
    cheat: bool = False  # the failure is of a kind that only a trick produces (stateful, late, ...)

    def __post_init__(self) -> None:
        kind = SENTENCES[self.reason][0]
        if kind is not self.kind:
            raise ValueError(f"reason {self.reason} belongs to {kind}, not {self.kind}")

    @property
    def kept(self) -> bool:
        return self.kind is Kind.KEEP


class CaseStanding(Struct, frozen=True):
    """Where a case stands after the keeps so far: log-ratio against the original, its best ever, and the variance of the sum."""

    case: str
    total: float = 0.0
    best: float = 0.0
    variance: float = 0.0


class Calibration(Struct, frozen=True):
    """What this machine can tell apart, for one task. All log-ratios, positive."""

    machine: str  # fingerprint hash
    sigma: float  # SD between rounds of the composite, same kernel in both arms
    offset: float  # mean of the same: the harness's own preference
    layout: float  # SD between builds of equal meaning and different layout
    case_sigma: tuple[tuple[str, float], ...]
    rounds: int
    sentinel_ns: float
    block_ms: float
    when: float  # unix time
    layouts: int = 0  # number of layout variants measured

    @property
    def margin(self) -> float:
        return max(0.003, 2 * abs(self.offset), 3.1 * self.layout)

    def sigma_of(self, case: str) -> float:
        return dict(self.case_sigma).get(case, self.sigma)


class Machine(Struct, frozen=True):
    """Facts that must agree before two times are compared."""

    cpu: str
    cores: int
    kernel: str
    compiler: str
    walls: str
    gpu: str = ""
    ceilings: tuple[tuple[str, float], ...] = ()  # e.g. ("copy_32MB_GBps", 18.9)
    hash: str = ""


def percent(d: float) -> float:
    """Gain in per cent from a log-ratio: +25.0 means 1.25 times as many calls a second."""
    return (math.exp(-d) - 1.0) * 100.0
