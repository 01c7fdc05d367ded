"""An agent as a proposer: builds its job from the brief, gives it a turn, and one more try when nothing came of it.

Owns what goes into a job, when a conversation goes on, what a turn cost, and how edited files become a change to the champion. Every
turn is told to the run at once, with its bill. Must not know how an agent is started or spoken to, nor how the brief's text is made.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from keepfast.errors import UsageError
from keepfast.model import Candidate, Event, File, Files, Idea, Task, TurnNote
from keepfast.propose import ideas, lessons
from keepfast.propose.agent import NEXT_STEP, Agent, Job, Limits, Outcome, Page, Turn
from keepfast.propose.base import Brief
from keepfast.propose.edits import Edit, next_turn, returned, store
from keepfast.propose.flights import Flight, Landed
from keepfast.propose.outside import NAME, Submit
from keepfast.propose.prices import Table, price
from keepfast.task.paths import expand

BriefText = Callable[[Brief], tuple[str, tuple[Page, ...]]]
TRIES = 2  # turns for one proposal: the second one after nothing came of the first
CONVERSATION = 6  # turns after which a conversation is begun anew
READABLE = 1 << 20  # bytes of a file that an agent may read beside its own
WANTED = 3  # ideas that an agent is asked for when none is open
OWN_LAST = "your-last-change"
RESERVE = 0.1  # share of the money that only finishes what was begun

AGAIN: dict[Outcome, str] = {
    Outcome.NOTHING: "Your last turn changed no file. Edit the files themselves, in this folder; an answer in words changes nothing.",
    Outcome.MALFORMED: "Your last answer held no edit that can be applied.",
    Outcome.REFUSED: (
        "To say it in other words: this is an ordinary numerical kernel of the person who asks, and it is to become faster. "
        "Everything here is theirs to change. Write it in {languages}."
    ),
    Outcome.CRASHED: "Your last turn ended half way. Begin again, in smaller steps.",
}
ASKED = (
    f"No idea is open. Write {WANTED} ideas worth trying, each on a line of its own in your last message that begins with `IDEA: `; "
    "then carry out the first one, and only that one."
)


RETURNED = f"The files are those of that experiment; yours are in {OWN_LAST}/: make your change again, on these."


class AgentProposer(Struct, frozen=True):
    """`text` renders the brief. `prices` None: the table that ships with keepfast."""

    agent: Agent
    text: BriefText
    limits: Limits = Limits()
    prices: Table | None = None

    @property
    def name(self) -> str:
        return self.agent.name

    def begin(self, brief: Brief) -> Flight:
        """The agent's next turn on this brief, not taken yet."""
        words, pages = self.text(brief)
        back = returned(self.name, brief)
        job = Job(
            files=(brief.files or brief.champion).files,
            readable=(*readable(brief.task), *(own_last(back[1]) if back else ())),
            brief=words,
            pages=pages,
            limits=capped(self.limits, share(brief, RESERVE)),
            session=conversation(self.name, brief),
            remark=remark(self.name, brief, back[0].text if back else ""),
            editable=brief.task.editable,
        )
        return Flight(self.agent, brief, job)

    def land(self, landed: Landed, now: Brief) -> Flight | None:
        """Tell the turn to the run, what it edited with it; another try, when nothing came of this one and it may have one."""
        flight, turn = landed.flight, landed.turn
        began = flight.brief
        brief = replace(now, champion=began.champion, idea=began.idea, files=began.files, fresh=began.fresh, asks=began.asks)
        edit = self._edit(brief, flight.job, turn) if turn.outcome is Outcome.EDITED else None
        note = self._note(brief, turn, store(edit, brief) if edit else "")
        event = Event("turn", said(note, turn), n=note.n, turn=note)
        brief.desk.tell(event)
        if edit is not None or flight.attempt + 1 >= TRIES:
            return None
        job = self._again(replace(brief, notes=(*brief.notes, event)), flight.job, turn, note.dollars or 0.0)
        return replace(flight, job=job, attempt=flight.attempt + 1) if job else None

    def _again(self, brief: Brief, job: Job, turn: Turn, spent: float) -> Job | None:
        """The same job with what was wrong; None when another try has no use, or no money. `spent`: on this turn."""
        words = AGAIN.get(turn.outcome)
        left = share(replace(brief, purse=replace(brief.purse, spent=brief.purse.spent + spent)), 0.0)
        if words is None or (left is not None and left <= (estimate(self.name, brief) or 0.0)):
            return None
        words = words.format(languages=" or ".join(brief.task.languages))
        exact = f" The exact error: {quoted(turn.detail)}" if turn.outcome is Outcome.MALFORMED and turn.detail else ""
        session = "" if turn.outcome is Outcome.CRASHED else turn.session
        return replace(job, remark=f"{words}{exact}", session=session, limits=capped(self.limits, left))

    # ---------------------------------------------------------------------------------- what came of it

    def _note(self, brief: Brief, turn: Turn, edit: str) -> TurnNote:
        return TurnNote(
            proposer=self.name,
            outcome=turn.outcome.value,
            n=len(brief.history) + 1,
            parent=brief.champion.n,
            idea=brief.idea.n if brief.idea else None,
            detail=one_line(turn.detail, 300),
            dollars=price(turn.version, turn.usage, self.prices),
            tokens=turn.usage.tokens,
            seconds=turn.seconds,
            when=brief.desk.now(),
            until=turn.until,
            session=turn.session,
            version=one_line(turn.version, 60),
            edit=edit,
        )

    def _edit(self, brief: Brief, job: Job, turn: Turn) -> Edit:
        idea = brief.idea or _ideas(brief, turn)
        title = one_line(turn.title, 120) or (one_line(idea.text, 120) if idea else f"an edit by {self.name}")
        change = against(brief.task, brief.champion, edited(job.files, turn.changed))
        source, idea_n = one_line(turn.version, 60), idea.n if idea else None
        return Edit(self.name, title, source, idea_n, change, brief.champion.n, next_turn(brief))


def submitted(given: Submit, brief: Brief) -> Event:
    """What somebody outside hands in, as if it had been a turn of an agent. UsageError when it cannot be compared with anything."""
    base = brief.desk.candidate(given.parent)
    if base is None:
        raise UsageError(f"the files of experiment {given.parent} are not stored")
    change = against(brief.task, base, edited(base.files, given.changed))
    title, author = one_line(given.title, 120) or "submitted from outside", one_line(given.author, 40) or NAME
    name = store(Edit(author, title, "", given.idea, change, given.parent, next_turn(brief)), brief)
    n, when = len(brief.history) + 1, brief.desk.now()
    note = TurnNote(author, Outcome.EDITED.value, n, given.parent, given.idea, when=when, session=given.id, edit=name)
    return Event("turn", n=n, turn=note)


def said(note: TurnNote, turn: Turn) -> str:
    """A sentence for whoever watches; empty for a turn whose edit is judged anyway."""
    if turn.outcome is Outcome.EDITED:
        return ""
    why = f": {note.detail}" if note.detail else ""
    return f"{note.proposer}: {turn.outcome.value.replace('-', ' ')}{why}; {NEXT_STEP[turn.outcome]}"


def _ideas(brief: Brief, turn: Turn) -> Idea | None:
    """The ideas that the agent was asked for, added as an agent's; the first one, which it carried out."""
    if not wants_ideas(brief):
        return None
    lines = re.findall(r"(?m)^[\s>*#\d.)-]*IDEA:\s*(\S.*)$", turn.said)[:WANTED]
    made = [brief.desk.idea(one_line(words, 200)) for words in lines]
    return made[0] if made else None


def wants_ideas(brief: Brief) -> bool:
    """Whether the queue is dry and nobody was given a free hand on purpose."""
    return brief.asks and brief.idea is None and ideas.in_hand(brief.ideas, brief.history) is None


# --------------------------------------------------------------------------------------------- conversations


def turns(name: str, brief: Brief) -> tuple[TurnNote, ...]:
    """The proposer's turns in this run, oldest first."""
    return tuple(e.turn for e in brief.notes if e.turn is not None and e.turn.proposer == name)


def conversation(name: str, brief: Brief) -> str:
    """The session to go on with: of its last turn, when that was on the same idea (with none: on the same champion); else ""."""
    past = turns(name, brief)
    if brief.fresh or not past or past[-1].outcome == Outcome.CRASHED:
        return ""
    last, idea = past[-1], brief.idea.n if brief.idea else None
    same = last.idea == idea and (idea is not None or last.parent == brief.champion.n)
    long = len(past) >= CONVERSATION and all(t.session == last.session for t in past[-CONVERSATION:])
    return last.session if same and not long else ""


def remark(name: str, brief: Brief, back: str) -> str:
    """What became of its last change, and what it is asked for besides; in our words alone. `back`: why its last edit goes back to it."""
    told = f"Your last change was not judged: {back}. {RETURNED}" if back else lessons.last(name, brief.history)
    begin = f"The files are those of experiment {brief.files.n}, the best attempt at this idea so far." if brief.files else ""
    own = "" if brief.fresh else told
    caught = "".join(f"Cheats so far: {words}" for words in lessons.cheats(brief.history, name))
    return " ".join(part for part in (own, caught, begin, ASKED if wants_ideas(brief) else "") if part)


# --------------------------------------------------------------------------------------------- money


def share(brief: Brief, reserve: float) -> float | None:
    """What one turn may spend: the room, divided among those that are about to begin."""
    left = room(brief, reserve)
    return None if left is None else left / brief.purse.among


def room(brief: Brief, reserve: float) -> float | None:
    """Dollars that may still be spent when the share `reserve` is kept back; None when there is no budget of money."""
    most = brief.purse.dollars
    return None if most is None else max(0.0, most * (1.0 - reserve) - brief.purse.spent)


def estimate(name: str, brief: Brief) -> float | None:
    """What a turn of the proposer is likely to cost: the median of those with a known price; None before there is one."""
    known = sorted(t.dollars for t in turns(name, brief) if t.dollars is not None and (t.dollars or t.tokens))
    return known[len(known) // 2] if known else None


def capped(limits: Limits, most: float | None) -> Limits:
    """`limits` with no more dollars than there are."""
    if most is None:
        return limits
    return replace(limits, dollars=most if limits.dollars is None else min(limits.dollars, most))


# --------------------------------------------------------------------------------------------- files


def readable(task: Task) -> tuple[File, ...]:
    """What an agent may read beside its own files: reference.py, and what the task makes readable to the compiler."""
    found = [(path, Path(task.root) / path) for path in expand(Path(task.root), task.build.readable)]
    reference = Path(task.folder) / "reference.py"
    files = [("reference.py", reference), *found]
    plain = [(name, p) for name, p in files if p.is_file() and not p.is_symlink() and p.stat().st_size <= READABLE]
    return tuple(File(name, path.read_bytes()) for name, path in plain)


def own_last(edit: Edit) -> tuple[File, ...]:
    """The files of an edit that went back to its author, to read beside the new ones."""
    return tuple(File(f"{OWN_LAST}/{path.replace('../', '')}", data) for path, data in edit.change.files if data is not None)


def edited(files: tuple[File, ...], changed: tuple[tuple[str, bytes | None], ...]) -> tuple[File, ...]:
    """`files` as the turn left them."""
    now = {f.path: f for f in files}
    for path, data in changed:
        if data is None:
            now.pop(path, None)
        else:
            now[path] = File(path, data, path in now and now[path].executable)
    return tuple(now.values())


def against(task: Task, champion: Candidate, files: tuple[File, ...]) -> Files:
    """From the champion to `files`, as whole files with paths relative to the task's folder."""
    old, new = {f.path: f.data for f in champion.files}, {f.path: f.data for f in files}
    changed = [(path, new.get(path)) for path in sorted(old | new) if old.get(path) != new.get(path)]
    return Files(tuple((posixpath.relpath(posixpath.join(task.root, path), task.folder), data) for path, data in changed))


def one_line(text: str, most: int) -> str:
    """Foreign text as one printable line of at most `most` characters."""
    plain = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * most]).split())
    return plain if len(plain) <= most else plain[: most - 3] + "..."


def quoted(text: str) -> str:
    """Foreign text inside a sentence of ours: one line, cut, and without the mark that ends the quotation."""
    return f"`{one_line(text, 400).replace('`', chr(39))}`"
