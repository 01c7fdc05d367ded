"""What people and watchers exchange with a run: ideas, commands from another terminal, events. One third of the ledger.

Knows its tables. Must not know what a command does, except that an idea arrives in the same transaction that takes it.
"""

from __future__ import annotations

import time

from msgspec import Struct
from msgspec.structs import replace

from keepfast.errors import UsageError
from keepfast.ledger.store import Store, decode, encode, text
from keepfast.model import Event, Experiment, Idea, Run

STATES = ("open", "trying", "kept", "dead")
NOTES = ("turn", "switch", "idea", "try", "returned", "e2e")


class Command(Struct, frozen=True):
    """A line from the inbox: `stop`, `budget`, `idea`, `clear`, with its argument as typed."""

    id: int
    command: str
    argument: str
    when: float  # unix time


class Stamped(Struct, frozen=True):
    """An event with its place in the order and its time."""

    id: int
    when: float
    event: Event


class Mail:
    """Ideas, inbox and events of a ledger."""

    _store: Store

    # ---------------------------------------------------------------------------------- ideas, per task

    def ideas(self, task: str) -> tuple[Idea, ...]:
        rows = self._store.rows("SELECT n, text, author, state, why FROM ideas WHERE task = ? ORDER BY n", task)
        return tuple(Idea(*row) for row in rows)

    def add_idea(self, task: str, words: str, author: str = "human") -> Idea:
        with self._store.transaction():
            return self._insert_idea(task, words, author)

    def set_idea(self, task: str, n: int, state: str, why: str = "") -> None:
        """Give idea `n` a new state (open, trying, kept, dead); UsageError when there is no such idea."""
        if state not in STATES:
            raise ValueError(f"an idea is one of {', '.join(STATES)}, not {state}")
        if not self._store.execute("UPDATE ideas SET state = ?, why = ? WHERE task = ? AND n = ?", state, text(why), task, n):
            raise UsageError(f"no idea {n} for task {task}", next_step="keepfast idea list")

    def drop_idea(self, task: str, n: int, why: str = "dropped by hand") -> None:
        self.set_idea(task, n, "dead", why)

    def _insert_idea(self, task: str, words: str, author: str) -> Idea:
        n = int(self._store.one("SELECT COALESCE(MAX(n), 0) + 1 FROM ideas WHERE task = ?", task)[0])
        idea = Idea(n, text(words), author)
        self._store.execute("INSERT INTO ideas VALUES (?, ?, ?, ?, ?, ?)", task, n, idea.text, author, idea.state, idea.why)
        return idea

    # ---------------------------------------------------------------------------------- commands from another terminal

    def post(self, command: str, argument: str = "", run_id: str = "") -> None:
        """Leave a command for `run_id`, or for whichever run comes by first; it is read at the next turn."""
        sql = "INSERT INTO inbox (stamp, command, argument, run) VALUES (?, ?, ?, ?)"
        self._store.execute(sql, time.time(), command, text(argument), run_id)

    def take(self, run: Run) -> tuple[Command, ...]:
        """Commands for `run` that were not taken yet, and now are. An `idea` is among the task's ideas when this returns."""
        waiting = "taken IS NULL AND run IN ('', ?)"
        if self._store.one(f"SELECT 1 FROM inbox WHERE {waiting} LIMIT 1", run.id) is None:
            return ()
        with self._store.transaction():
            found = self._commands(waiting, run.id)
            for command in found:
                if command.command == "idea":
                    self._insert_idea(run.task, command.argument, "human")
                self._store.execute("UPDATE inbox SET run = ?, taken = ? WHERE id = ?", run.id, time.time(), command.id)
        return found

    def commands(self, run_id: str) -> tuple[Command, ...]:
        """Every command that `run_id` has taken, oldest first; what a resumed run reads its raised budget from."""
        return self._commands("taken IS NOT NULL AND run = ?", run_id)

    def _commands(self, which: str, run_id: str) -> tuple[Command, ...]:
        rows = self._store.rows(f"SELECT id, command, argument, stamp FROM inbox WHERE {which} ORDER BY id", run_id)
        return tuple(Command(*row) for row in rows)

    # ---------------------------------------------------------------------------------- events

    def add_event(self, run_id: str, event: Event) -> int:
        """Store an event for those who watch from outside; its id. The experiment itself is not stored twice."""
        slim = encode(replace(event, experiment=None, n=event.experiment.n if event.experiment else event.n))
        return self._store.insert("INSERT INTO events (run, stamp, record) VALUES (?, ?, ?)", run_id, time.time(), slim)

    def add_turn(self, run_id: str, event: Event) -> None:
        """Store the event of an agent's turn and its cost together. The cost waits for the proposer's next experiment."""
        if (turn := event.turn) is None:
            raise ValueError("an event without a turn costs nothing")
        with self._store.transaction():
            if turn.dollars or turn.tokens:
                self.add_cost(run_id, turn.proposer, turn.dollars or 0.0, turn.tokens)
            self.add_event(run_id, event)

    def add_cost(self, run_id: str, who: str, dollars: float, tokens: int, n: int = 0) -> None:
        """Write down what was spent; `n` 0: it belongs to no experiment yet."""
        sql = "INSERT INTO costs (run, n, who, dollars, tokens) VALUES (?, ?, ?, ?, ?)"
        self._store.execute(sql, run_id, n, text(who), dollars, tokens)

    def notes(self, run_id: str) -> tuple[Event, ...]:
        """What a roster decides from: turns, switches and calls for ideas, oldest first."""
        rows = self._store.rows("SELECT id, record FROM events WHERE run = ? ORDER BY id", run_id)
        found = (decode(blob, Event, f"event {i}") for i, blob in rows)
        return tuple(e for e in found if e.kind in NOTES)

    def events(self, run_id: str, since: int = 0) -> tuple[Stamped, ...]:
        """Events with an id above `since`, oldest first. A `verdict` carries its experiment, without rounds."""
        sql = "SELECT id, stamp, record FROM events WHERE run = ? AND id > ? ORDER BY id"
        rows = self._store.rows(sql, run_id, since)
        return tuple(Stamped(i, stamp, self._whole(run_id, decode(blob, Event, f"event {i}"))) for i, stamp, blob in rows)

    def _whole(self, run_id: str, event: Event) -> Event:
        if event.kind != "verdict":
            return event
        row = self._store.one("SELECT record FROM experiments WHERE run = ? AND n = ?", run_id, event.n)
        return replace(event, experiment=decode(row[0], Experiment, f"experiment {event.n}")) if row else event
