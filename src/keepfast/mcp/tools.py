"""What an agent outside may do, one method a tool: read what the run knows, ask the judge, hand changes in.

Owns what a tool needs of the run, and what is remembered between two calls: which experiment's files were shown, which questions wait.
Waits without holding a thread. Must not know the protocol.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from keepfast.cli.stand import Stand, standing
from keepfast.errors import UsageError
from keepfast.mcp import door, files, words
from keepfast.mcp.door import Door, Fate, Ticket
from keepfast.mcp.files import Texts
from keepfast.mcp.starter import Starter
from keepfast.model import Candidate, File
from keepfast.propose.agent import Changed
from keepfast.propose.quote import Quote

WAIT_S = 600.0  # that a call waits at most
T = TypeVar("T")
Pause = Callable[[float], Awaitable[None]]


class Tools:
    """`task`: its folder. `pause` sleeps without holding the server up, `apart` runs what takes a moment."""

    def __init__(self, task: Path, starter: Starter, pause: Pause, apart: Callable[[Callable[[], object]], Awaitable[object]]) -> None:
        self._task, self._starter, self._pause, self._apart = task, starter, pause, apart
        self._shown: int | None = None
        self._asked: dict[bytes, Ticket] = {}  # tries whose answer nobody has got yet, by what they are about
        self._handed: list[Ticket] = []

    # ---------------------------------------------------------------------------------- reading

    def brief(self) -> str:
        """Goal and distance to it, rules, ideas, what was tried and why it failed, the machine's measured ceilings, cases, reference.

        Read it first: it is all that is known. With no run going on, this starts one.
        """
        from keepfast.cli.brief import facts_here
        from keepfast.propose import brief

        with self._standing() as stand:
            news = self._news(stand)
            text = brief.text(replace(facts_here(stand), answer=words.ANSWER))
        return f"{news}\n\n{text}" if news else text

    def files(self) -> str:
        """The champion, the kernel to beat: its experiment number and its editable files, whole. With no run going on, this starts one."""
        with self._standing() as stand:
            news = self._news(stand)
            champion = stand.champion()
            self._shown = champion.n or None
            text = words.files(champion, _quote(stand))
        return f"{news}\n\n{text}" if news else text

    def ideas(self) -> str:
        """The ideas on this task: open, trying, kept or dead, with the reason."""
        with self._standing() as stand:
            return words.ideas(stand.ideas(), _quote(stand))

    def history(self, last: int = 20) -> str:
        """The last experiments of the run, newest first: verdict, reason, gain with its interval, title."""
        with self._standing() as stand:
            if stand.run is None or stand.ledger is None:
                return "There was no run of this task yet."
            found = stand.ledger.experiments(stand.run.id, newest=min(max(last, 1), 500))
            return words.history(found, found[0].n - 1 if found else 0, _quote(stand))

    def status(self) -> str:
        """Where the run stands: who runs it, champion, goal, what is left of the budget, the last verdict. Starts nothing."""
        from keepfast.cli.place import said
        from keepfast.report import book, text

        with self._standing() as stand:
            if stand.run is None or stand.ledger is None:
                return "There was no run of this task yet: `brief` or `files` starts one."
            holder = stand.ledger.holder()
            mine = holder is not None and holder.run == stand.run.id
            lines = text.status(book.read(stand.ledger, stand.run, stand.task), said(holder) if holder and mine else "", 140)
            left = stand.budget_left(stand.ledger.experiments(stand.run.id))
            return f"{words.DATA}\n\n{_quote(stand).fence(chr(10).join([*lines, f'left      {left}']), words.ROOM)}"

    def add_idea(self, text: str) -> str:
        """Add an idea worth trying, in a sentence. It is marked as an agent's."""
        from keepfast.ledger import Ledger

        with self._standing() as stand:
            if not text.strip():
                raise UsageError("an idea needs words")
            if stand.repo is None or stand.run is None:
                raise UsageError("there was no run of this task yet", next_step="`brief` starts one")
            with Ledger.open(stand.repo.state) as ledger:
                idea = ledger.add_idea(stand.task.name, text[:2000], "agent")
        return f"Idea {idea.n} is added; hand changes for it in with idea={idea.n}."

    # ---------------------------------------------------------------------------------- asking and handing in

    async def try_(self, files: dict[str, str | None] | None = None, parent: int | None = None) -> str:
        """Have the judge build, check and roughly time a change, without handing it in. Counts against the budget; takes up to minutes.

        files: whole files by their paths, null for one that is removed; left out: the task's editable files as they lie in the working
        tree. parent: the experiment that `files` are a change of; left out: the one that the tool `files` has shown, else the champion.
        """
        ticket, about, on = await self._threaded(lambda: self._try(files, parent))
        q = await self._threaded(self._quote)
        found = await self._until(lambda: door.answer(ticket), WAIT_S)
        if found is None:
            return (
                f"There is no answer yet, after {WAIT_S:g} s. Call `try` again with the same files: it goes on waiting and costs nothing."
            )
        self._asked.pop(about, None)
        return words.judged(found, q, on)

    async def submit(
        self,
        title: str,
        files: dict[str, str | None] | None = None,
        parent: int | None = None,
        idea: int | None = None,
        wait: bool = False,
    ) -> str:
        """Hand a change in: it is judged, and kept when it is right and faster. Returns the submission's id at once.

        title: one line that says what was changed. files, parent: as for `try`. idea: number of the idea that it is for. wait: wait for
        the verdict, ten minutes at most.
        """
        ticket = await self._threaded(lambda: self._submit(title, files, parent, idea))
        self._handed = [*self._handed[-99:], ticket]
        if wait:
            return await self.verdict(ticket.id, wait=True)
        return f"Submission `{ticket.id}` is handed in. Ask `verdict` for it in a while."

    async def verdict(self, which: str = "", wait: bool = False) -> str:
        """What became of a submission, by its id, or of an experiment, by its number; left out: of your last submission.

        wait: until there is a verdict, ten minutes at most.
        """
        q = await self._threaded(self._quote)
        if which.isdecimal():
            return await self._threaded(lambda: self._experiment(int(which), q))
        ticket = await self._threaded(lambda: self._ticket(which))

        def look() -> Fate:
            return door.fate(ticket.door, ticket.id, ticket.since)

        found = await self._until(lambda: fate if (fate := look()).over else None, WAIT_S if wait else 0.0)
        return words.fate(ticket.id, await self._threaded(look) if found is None else found, q)

    # ---------------------------------------------------------------------------------- parts, each in a thread

    def _try(self, texts: Texts | None, parent: int | None) -> tuple[Ticket, bytes, str]:
        """The question, posted unless it was before; by what it is remembered; and what it is about, in words."""
        with self._open() as (stand, way):
            _, mine = self._meant(stand, texts, parent)
            champion = stand.champion()
            changed = files.changes(champion, mine)
        about = hashlib.sha256(msgspec.msgpack.encode((way.run, changed))).digest()
        ticket = self._asked.get(about) or door.ask(way, changed)
        self._asked = dict([*self._asked.items()][-20:]) | {about: ticket}
        return ticket, about, f"{_names(changed)} against experiment {champion.n}"

    def _submit(self, title: str, texts: Texts | None, parent: int | None, idea: int | None) -> Ticket:
        if not title.strip():
            raise UsageError("a submission needs a title: one line that says what was changed")
        with self._open() as (stand, way):
            if idea is not None and idea not in [i.n for i in stand.ideas()]:
                raise UsageError(f"there is no idea {idea}", next_step="`ideas` lists them, `add_idea` adds one")
            base, mine = self._meant(stand, texts, parent)
            changed = files.changes(base, mine)
        return door.hand_in(way, changed, base.n, title, idea)

    def _meant(self, stand: Stand, texts: Texts | None, parent: int | None) -> tuple[Candidate, tuple[File, ...]]:
        """What a change is against, and the files that it leads to."""
        if texts is None:
            mine = files.working(stand.task)
            return files.of_experiment(stand, parent) if parent else files.origin(stand, mine), mine
        n = parent or self._shown
        base = files.of_experiment(stand, n) if n else stand.champion()
        return base, files.given(stand.task, base, texts)

    def _experiment(self, n: int, q: Quote) -> str:
        with self._standing() as stand:
            if stand.run is None or stand.ledger is None:
                raise UsageError("there was no run of this task yet")
            return words.experiment(stand.ledger.experiment(stand.run.id, n), q)

    def _ticket(self, which: str) -> Ticket:
        """The submission of that id; one of an earlier session is looked for in the run."""
        if found := next((t for t in reversed(self._handed) if which in ("", t.id)), None):
            return found
        if not which:
            raise UsageError("nothing was submitted in this session", next_step="give an id or the number of an experiment")
        with self._standing() as stand:
            if stand.repo is None or stand.run is None:
                raise UsageError("there was no run of this task yet")
            return Ticket(Door(stand.repo.state, stand.run.id), which, "submit", 0)

    def _quote(self) -> Quote:
        with self._standing() as stand:
            return _quote(stand)

    def _news(self, stand: Stand) -> str:
        """What there is to say of the run, for tools that read also where there will be none."""
        try:
            return self._starter.see_to_it(stand)
        except UsageError as error:
            return f"No run is going on: {error.text()}"

    @contextmanager
    def _standing(self) -> Iterator[Stand]:
        with standing(self._task) as stand:
            yield stand

    @contextmanager
    def _open(self) -> Iterator[tuple[Stand, Door]]:
        """UsageError while there is no run that takes questions; one is started where it may be."""
        with self._standing() as stand:
            if news := self._starter.see_to_it(stand):
                raise UsageError(news)
            yield stand, door.door_of(stand)

    async def _threaded(self, work: Callable[[], T]) -> T:
        return await self._apart(work)  # type: ignore[return-value]

    async def _until(self, look: Callable[[], T | None], seconds: float) -> T | None:
        """What is found, looking again and again for so long."""
        until = time.monotonic() + seconds
        while (found := await self._threaded(look)) is None and time.monotonic() < until:
            await self._pause(door.LOOK_S)
        return found


def _quote(stand: Stand) -> Quote:
    return Quote(stand.task.folder, stand.task.root)


def _names(changed: Changed) -> str:
    names = [f"`{path}`" for path, _ in changed]
    return f"{', '.join(names[:5])}{f' and {len(names) - 5} more' if len(names) > 5 else ''}"
