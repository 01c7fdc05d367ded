"""The records of keepfast: what a task is, what a judge found, what the ledger remembers.

Owns the closed lists (verdict kinds, reason codes, phases) and the frozen records that cross module borders.
Must not know files, git, processes or clocks. Ratios are natural logarithms of time(subject) / time(opponent):
negative is faster. `percent()` turns one into the gain that people read.
"""

from __future__ import annotations

import math
from enum import StrEnum

from msgspec import Struct, field

# --------------------------------------------------------------------------------------------- the calling contract


class Arg(Struct, frozen=True):
    """One argument of a signature, in schema order."""

    name: str
    kind: str  # tensor | int | float | bool | str
    optional: bool = False
    alias: str = ""  # alias set, `a` of Tensor(a!)
    written: bool = False  # marked `!`
    default: bool | int | float | str | None = None
    has_default: bool = False


class Return(Struct, frozen=True):
    """One returned tensor. With an alias it is an argument handed back, not a new output."""

    name: str
    alias: str = ""


class Signature(Struct, frozen=True):
    name: str
    args: tuple[Arg, ...]
    returns: tuple[Return, ...]
    text: str

    @property
    def tensors(self) -> tuple[Arg, ...]:
        return tuple(a for a in self.args if a.kind == "tensor")

    @property
    def written(self) -> tuple[Arg, ...]:
        """Arguments that the kernel writes (`!`), in schema order."""
        return tuple(a for a in self.args if a.written)

    @property
    def outputs(self) -> tuple[Return, ...]:
        """Fresh outputs: returned tensors that are not an argument handed back."""
        return tuple(r for r in self.returns if not r.alias)

    @property
    def results(self) -> tuple[str, ...]:
        """Names of everything that is compared: written arguments, then outputs."""
        return tuple(a.name for a in self.written) + tuple(r.name for r in self.outputs)


# --------------------------------------------------------------------------------------------- the task


class Case(Struct, frozen=True):
    """Values for every axis; `weight` is normalised over the timed cases."""

    name: str
    axes: tuple[tuple[str, int], ...]
    weight: float = 1.0
    use: str = "both"  # time | correct | both

    @property
    def timed(self) -> bool:
        return self.use in ("time", "both")

    def axis(self, name: str) -> int:
        return dict(self.axes)[name]


class Argument(Struct, frozen=True):
    """`[arguments] NAME = {...}`: what the human says about one argument."""

    name: str
    role: str = "input"  # input | weight | scratch | index | meta
    refresh: str = "element"  # element: new contents mix two draws per element; whole: a draw is used as it is
    dtype: str = ""  # a name of `dtypes`; empty: as inputs() and reference() return it


class Goal(Struct, frozen=True):
    speedup: float | None = None  # e.g. 1.3: at least 1.3x
    over: str = "baseline"  # baseline: the fastest passing baseline; start: the kernel the run began with
    limit: float | None = None  # e.g. 0.9: at least 90 % of the physical limit


class Budget(Struct, frozen=True):
    experiments: int | None = 200
    hours: float | None = None
    dollars: float | None = None
    dry: int | None = None  # stop after so many experiments in a row without a keep


class Rules(Struct, frozen=True):
    cuda_graphs: str = "allowed"
    library_kernels: str = "allowed"


class Limit(Struct, frozen=True):
    """Least work a call must do, as bounded expressions over the axes."""

    bytes: str = ""
    flops: str = ""


class Build(Struct, frozen=True):
    flags: tuple[str, ...] = ("-O2",)
    libs: tuple[str, ...] = ()  # e.g. "-lm", after the sources
    sources: tuple[str, ...] = ()  # further sources, relative to root
    include: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()  # globs, relative to root: files the compiler may read


class Tolerance(Struct, frozen=True):
    """How a result is compared; see docs/verdict.md. `reduction` is an expression over the axes (L)."""

    reduction: str = ""
    scale: float = 1.0  # widens the whole error budget; 1 is the default and what should be used


class Baseline(Struct, frozen=True):
    name: str
    path: str  # relative to the task folder
    language: str  # c | python


class Task(Struct, frozen=True):
    """A task as read and validated. Paths are relative to `root`, which is relative to the repository."""

    name: str
    title: str
    folder: str  # absolute path of the task folder
    root: str  # absolute path that `editable`, `entry` and `[build]` are relative to
    signature: Signature
    languages: tuple[str, ...]
    entry_path: str
    entry_symbol: str
    editable: tuple[str, ...]  # globs relative to root
    axes: tuple[str, ...]
    cases: tuple[Case, ...]
    arguments: tuple[Argument, ...]
    goal: Goal
    budget: Budget
    rules: Rules
    limit: Limit
    build: Build
    tolerance: Tolerance
    baselines: tuple[Baseline, ...]
    tunables: str  # path of tunables.toml relative to root, or ""
    threads: int
    oracle: str  # reference | frozen  ("frozen": same as before, not proven right)
    hash: str  # task.toml less budget, reference, baselines
    prepare: str = ""  # "step": a `prepare` beside the entry runs before each call, inside the clock (GPU judge only)

    @property
    def timed(self) -> tuple[Case, ...]:
        return tuple(c for c in self.cases if c.timed)

    def weights(self) -> tuple[float, ...]:
        total = sum(c.weight for c in self.timed)
        return tuple(c.weight / total for c in self.timed)

    def argument(self, name: str) -> Argument:
        return next((a for a in self.arguments if a.name == name), Argument(name))


# --------------------------------------------------------------------------------------------- candidates


class File(Struct, frozen=True):
    path: str  # relative to the task's root, forward slashes
    data: bytes
    executable: bool = False
    link: bool = False  # a symbolic link, and `data` is where it points; never part of a champion


class Patch(Struct, frozen=True):
    """A unified diff, paths relative to the task folder, applied to the champion."""

    diff: str


class Files(Struct, frozen=True):
    """Whole files that replace (data) or remove (None) files of the champion; paths relative to the task folder."""

    files: tuple[tuple[str, bytes | None], ...]


class Tunables(Struct, frozen=True):
    """New values for declared tunables."""

    values: tuple[tuple[str, int | float | str | bool], ...]


class Proposal(Struct, frozen=True):
    title: str
    proposer: str  # deck | search | hand | ...
    change: Patch | Files | Tunables
    source: str = ""  # e.g. deck/006-remember.patch
    idea: int | None = None


class Candidate(Struct, frozen=True):
    """A frozen set of editable files and the commit that holds it."""

    files: tuple[File, ...]
    tree: str  # sha256 over paths and contents of the editable files
    commit: str  # git commit, "" when not committed
    n: int = 0  # experiment number, 0 for what is not one


# --------------------------------------------------------------------------------------------- verdicts


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
    Reason.BUILD: (Kind.REJECT, "does not compile"),
    Reason.BUILD_LIMIT: (Kind.REJECT, "compiling took too long or too much"),
    Reason.LOAD: (Kind.REJECT, "does not load"),
    Reason.CRASH: (Kind.REJECT, "crashed"),
    Reason.HANG: (Kind.REJECT, "did not come back"),
    Reason.WRONG: (Kind.REJECT, "wrong result"),
    Reason.STATEFUL: (Kind.REJECT, "an old answer came back for new contents"),
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


# --------------------------------------------------------------------------------------------- the ledger's records


class Experiment(Struct, frozen=True):
    n: int
    proposer: str
    title: str
    source: str
    idea: int | None
    tree: str
    commit: str
    parent: int  # experiment number of the champion it was judged against, 0 for the start itself
    verdict: Verdict
    started: float  # unix time
    seconds: float
    tunables: tuple[tuple[str, int | float | str | bool], ...] = ()
    structure: str = ""  # hash of the editable files with tunable values removed
    dollars: float = 0.0
    tokens: int = 0


class Direct(Struct, frozen=True):
    """A direct measurement of a champion: against the start or a baseline."""

    n: int  # experiment number of the champion
    against: str  # start | baseline NAME
    estimate: Estimate
    cases: tuple[CaseTime, ...]
    final: bool
    when: float


class BaselineResult(Struct, frozen=True):
    name: str
    ok: bool
    detail: str  # why it did not pass, or ""
    estimate: Estimate | None  # against the start


class Begin(Struct, frozen=True):
    """What the judge finds before the loop: the start's own verdict, the noise, and the opponents."""

    verdict: Verdict
    calibration: Calibration | None  # None when the start did not pass
    baselines: tuple[BaselineResult, ...] = ()


class Run(Struct, frozen=True):
    id: str  # e.g. softmax-1
    task: str
    task_hash: str
    task_folder: str
    branch: str  # keepfast/<id>
    base: str  # commit the run began from (with uncommitted edits of the task snapshotted)
    head: str  # the user's HEAD then
    seed: int
    started: float
    machine: Machine
    settings: tuple[tuple[str, str], ...] = ()  # proposer, goal, budget as given
    state: str = "running"  # running | stopped | goal | budget | deck-done | interrupted
    title: str = ""


class End(Struct, frozen=True):
    """How a run ended, and what to ship."""

    run: Run  # with its state
    state: str  # goal | budget | deck-done | stopped | interrupted
    why: str  # one sentence
    champion: Experiment  # the start itself when nothing was kept
    directs: tuple[Direct, ...]  # newest direct measurement of the champion against each opponent
    counts: tuple[tuple[Kind, int], ...]  # experiments per kind, the start not counted
    keeps: int  # commits on the branch
    cheats: int = 0
    branch: str = ""
    seconds: float = 0.0  # of this session


class Idea(Struct, frozen=True):
    n: int
    text: str
    author: str  # human | agent
    state: str = "open"  # open | trying | kept | dead
    why: str = ""


class Event(Struct, frozen=True):
    """Progress, for whoever watches. `kind` is one of: run, calibrate, baseline, propose, rung, round, verdict, direct, note, end."""

    kind: str
    text: str = ""
    experiment: Experiment | None = None
    n: int = 0
    numbers: tuple[tuple[str, float], ...] = field(default=())
    direct: Direct | None = None  # with kind direct
    calibration: Calibration | None = None  # with kind calibrate


def percent(d: float) -> float:
    """Gain in per cent from a log-ratio: +25.0 means 1.25 times as many calls a second."""
    return (math.exp(-d) - 1.0) * 100.0
