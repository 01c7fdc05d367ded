"""The life of an idea: open, trying, kept, dead with reason and assumption, open again when a later keep voids the assumption.

Pure functions of the task's ideas and the run's history. An idea is closed by its attempts, not by its first slow step: each attempt
goes on from the idea's own best candidate against the present champion. Must not know how a proposal is made or judged.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from msgspec import Struct

from keepfast.model import SENTENCES, Experiment, Idea, Kind, Reason, Verdict, percent

ATTEMPTS = 4  # experiments without a keep after which an idea is dead
AGAIN = 2  # the same, once it was reopened
REOPENED = 2  # times that an idea is reopened, at most

OURS = re.compile(r"^\d+ attempts?, none kept")  # how a reason begins that was written here, and not by a human
MENDED = (Reason.BUILD, Reason.WRONG, Reason.CRASH, Reason.HANG, Reason.OUT_OF_BOUNDS, Reason.UNSTABLE, Reason.RETURN_CODE, Reason.LOAD)


class Life(Struct, frozen=True):
    """Where an idea stands in this run. `attempts`: its experiments that the machine did not spoil."""

    idea: Idea
    state: str
    why: str = ""
    attempts: tuple[Experiment, ...] = ()
    reopened: int = 0
    structure: str = ""  # with state dead: the champion's structure that its death assumes; "" assumes none
    left: int = ATTEMPTS


def life(idea: Idea, history: tuple[Experiment, ...]) -> Life:
    """The idea's life so far. What a human or an earlier run closed stays closed."""
    tried = any(e.idea == idea.n for e in history)
    if idea.state == "dead" and not (tried and OURS.match(idea.why)):
        return Life(idea, "dead", idea.why)
    if idea.state == "kept" and not tried:
        return Life(idea, "kept", idea.why)
    now, structures = Life(idea, "open"), dict[int, str]()
    for experiment in history:
        structures[experiment.n] = experiment.structure
        if experiment.idea == idea.n and experiment.verdict.kind is not Kind.VOID:
            now = _tried(now, experiment, structures.get(experiment.parent, ""))
        elif experiment.verdict.kept and now.state == "dead":
            now = _reopened(now, experiment)
    return now


def _tried(now: Life, experiment: Experiment, structure: str) -> Life:
    attempts = (*now.attempts, experiment)
    if experiment.verdict.kept or now.state in ("kept", "dead"):
        state = "kept" if experiment.verdict.kept else now.state
        return Life(now.idea, state, "" if state == "kept" else now.why, attempts, now.reopened, now.structure, now.left)
    if now.left > 1:
        return Life(now.idea, "trying", "", attempts, now.reopened, "", now.left - 1)
    passed = any(_passed(a.verdict) for a in attempts)
    return Life(now.idea, "dead", _why(attempts, passed), attempts, now.reopened, structure if passed else "", 0)


def _reopened(now: Life, keep: Experiment) -> Life:
    """Open again when the keep changed the structure that the death assumes: numbers alone void nothing."""
    if not now.structure or keep.structure in ("", now.structure) or now.reopened >= REOPENED:
        return now
    why = f"reopened: experiment {keep.n} changed the kernel that it had been tried on"
    return Life(now.idea, "open", why, now.attempts, now.reopened + 1, "", AGAIN)


def _why(attempts: tuple[Experiment, ...], passed: bool) -> str:
    """Reason and assumption, in our words alone: nothing that a candidate or a compiler said."""
    measured = [(d, a) for a in attempts if (d := measure(a.verdict)) is not None]
    d, best = min(measured, key=lambda pair: pair[0]) if measured else (None, attempts[-1])
    result = SENTENCES[best.verdict.reason][1] if d is None else f"{percent(d):+.1f} %, {SENTENCES[best.verdict.reason][1]}"
    head = f"{len(attempts)} {'attempt' if len(attempts) == 1 else 'attempts'}, none kept; the closest was experiment {best.n}: {result}"
    assumed = f"the structure of experiment {attempts[-1].parent}" if passed else "that it cannot be made to pass"
    return f"{head}; assumes {assumed}"


def _passed(verdict: Verdict) -> bool:
    return verdict.kind in (Kind.REVERT, Kind.SUSPECT) and verdict.reason not in (Reason.NO_CHANGE, Reason.SEEN)


def measure(verdict: Verdict) -> float | None:
    """The best figure there is for a candidate that was right, as a log-ratio; None for one that was not measured."""
    if verdict.kind not in (Kind.KEEP, Kind.REVERT):
        return None
    estimate = verdict.gain or verdict.test
    return estimate.d if estimate else verdict.screen


def best(now: Life, champion: int) -> Experiment | None:
    """The attempt to go on from: the fastest that was right, else the newest that can be mended; None: begin from the champion.

    Only attempts at the present champion: an older one would undo what was kept since.
    """
    here = [a for a in now.attempts if a.parent == champion and a.commit and not a.verdict.cheat]
    measured = [(d, a.n, a) for a in here if (d := measure(a.verdict)) is not None and not a.verdict.kept]
    if measured:
        return min(measured)[2]
    return next((a for a in reversed(here) if a.verdict.reason in MENDED), None)


def in_hand(ideas: tuple[Idea, ...], history: tuple[Experiment, ...], taken: Collection[int] = ()) -> Life | None:
    """The idea to work on: the one that is being tried, else a human's, else an agent's, oldest first; None when the queue is dry.

    `taken`: those that somebody works on now, or whose last edit still waits for the judge.
    """
    lives = [life(i, history) for i in ideas if i.n not in taken]
    found = [x for x in lives if x.state in ("open", "trying")]
    return min(found, key=lambda x: (x.state != "trying", x.idea.author == "agent", x.idea.n), default=None)


def changed(ideas: tuple[Idea, ...], history: tuple[Experiment, ...]) -> tuple[Life, ...]:
    """Ideas whose state in the ledger is no longer what the history says."""
    lives = [life(i, history) for i in ideas]
    return tuple(x for x in lives if x.state != x.idea.state and (x.attempts or x.idea.state == "dead"))
