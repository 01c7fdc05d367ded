"""The desk of a run: what a proposer is told, and what it may ask for while it works.

Owns the brief, the notes that a roster decides from (turns, switches), and the ideas' states. Everything told here is in the ledger
before the proposer goes on, so a turn that was paid for is never forgotten. Must not know any proposer, judge or git.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from keepfast.errors import UsageError
from keepfast.materialise import Workshop
from keepfast.model import Candidate, Event, Experiment, File, Files, Idea
from keepfast.propose import ideas, tries
from keepfast.propose.base import Brief
from keepfast.session import Session


class RunDesk:
    """`propose.base.Desk` of one session of a run."""

    def __init__(self, session: Session, workshop: Workshop, tried: Callable[[tuple[File, ...], str], str]) -> None:
        self.s, self.workshop, self.tried = session, workshop, tried
        self.began = session.clock.time()
        self.notes: tuple[Event, ...] = ()
        self.experiments: tuple[Experiment, ...] = ()
        self.champion = Candidate((), "", "")

    def read_back(self) -> None:
        """Take the notes from the ledger, as at the beginning and on resume."""
        self.notes = self.s.ledger.notes(self.s.run.id)

    def brief(self, brief: Brief) -> Brief:
        """`brief` with what this desk knows."""
        self.experiments, self.champion = brief.history, brief.champion
        ideas_ = self.s.ledger.ideas(self.s.run.task)
        return replace(brief, notes=self.notes, ideas=ideas_, since=self.began, now=self.now(), desk=self)

    @property
    def tries(self) -> int:
        """How often the judge was asked within turns."""
        return tries.counted(self.notes)

    # ---------------------------------------------------------------------------------- what a proposer may ask

    def tell(self, event: Event) -> None:
        if event.turn is not None:
            self.s.ledger.add_turn(self.s.run.id, event)
        else:
            self.s.ledger.add_event(self.s.run.id, event)
        self.notes = (*self.notes, event)
        self.s.on_event(event)

    def idea(self, words: str) -> Idea:
        return self.s.ledger.add_idea(self.s.run.task, words, "agent")

    def candidate(self, n: int) -> Candidate | None:
        """The files of an experiment, from its commit; None when it has none, or its ref is gone."""
        found = next((e for e in self.experiments if e.n == n and e.commit), None)
        try:
            return self.workshop.at(found.commit, n) if found else None
        except UsageError:
            return None

    def merged(self, edit: Files, parent: int) -> Files | str:
        """Against the present champion. An edit of files that are not stored any more cannot be."""
        old = self.candidate(parent)
        return self.workshop.rebased(edit, old, self.champion) if old is not None else "what it began with is not stored any more"

    def now(self) -> float:
        return self.s.clock.time()

    def put(self, data: bytes) -> str:
        return self.s.ledger.put_artifact(data)

    def get(self, name: str) -> bytes | None:
        try:
            return self.s.ledger.artifact(name)
        except UsageError:
            return None

    # ---------------------------------------------------------------------------------- ideas

    def settle_ideas(self, history: tuple[Experiment, ...]) -> None:
        """Give every idea the state that the history says. Killed in between: the next turn does it."""
        for life in ideas.changed(self.s.ledger.ideas(self.s.run.task), history):
            self.s.ledger.set_idea(self.s.run.task, life.idea.n, life.state, life.why)
            if life.state in ("dead", "open"):
                why = f": {life.why}" if life.why else ""
                event = Event("note", f"idea {life.idea.n} is {life.state}{why}", n=len(history))
                self.s.ledger.add_event(self.s.run.id, event)
                self.s.on_event(event)
