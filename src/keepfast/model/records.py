"""What the ledger remembers of a run: experiments, direct measurements, baselines, ideas, events. Data only."""

from __future__ import annotations

from msgspec import Struct, field

from keepfast.model.verdict import Calibration, CaseTime, Estimate, Kind, Machine, Verdict


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
    edit: str = ""  # artifact of the turn that it comes from: what is in no experiment is still to be judged


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


class TurnNote(Struct, frozen=True):
    """One turn of an agent as it is written down: how it ended and what it cost. What it edited is in the experiment that follows."""

    proposer: str
    outcome: str  # a value of propose.agent.Outcome
    n: int  # number of the experiment that was in the making
    parent: int  # experiment number of the champion then
    idea: int | None = None
    detail: str = ""
    dollars: float | None = None  # None: nobody knows
    tokens: int = 0
    seconds: float = 0.0
    when: float = 0.0  # unix time of its end
    until: float | None = None  # unix time at which a rate limit resets
    session: str = ""  # of a conversation that can go on
    version: str = ""
    edit: str = ""  # artifact that holds what it edited, until that is an experiment


class Switch(Struct, frozen=True):
    """A decision of the roster about one proposer.

    `state`: on | off | asleep | demoted | broke is how it stands from now on; fresh | takes-over | counted is said once.
    """

    proposer: str
    state: str
    why: str
    n: int = 0  # number of the experiment that was in the making
    until: float | None = None  # unix time, with asleep


class Event(Struct, frozen=True):
    """Progress, for whoever watches.

    `kind` is one of: run, calibrate, baseline, propose, turn, switch, idea, try, returned, rung, round, verdict, direct, e2e, aa,
    certify, note, end.
    With kind e2e `about` is the artifact that holds the proof, and `n` the experiment that was proven.
    With kind aa `about` is the artifact that holds stock against stock in an engine; it belongs to no run.
    With kind certify `about` is the artifact that holds a routing table, or what was measured for one so far.
    """

    kind: str
    text: str = ""
    experiment: Experiment | None = None
    n: int = 0
    numbers: tuple[tuple[str, float], ...] = field(default=())
    direct: Direct | None = None  # with kind direct
    calibration: Calibration | None = None  # with kind calibrate
    turn: TurnNote | None = None  # with kind turn
    switch: Switch | None = None  # with kind switch
    about: str = ""  # with kind try: the id of the question it answers; with kind returned: the edit that its author gets back
