"""The roster: who proposes next. Several proposers with weights; what is free goes first, agents by what they earn for what they cost.

Owns the order and every switch, each of which is told to the run with its reason. Agents work while the judge does; what they leave waits
in a queue that follows from the ledger, and so does everything else here but the turns that are under way: a run that was killed goes on
as if it had not been, without those. Must not know how an agent works, or how anything is judged.
"""

from __future__ import annotations

from msgspec import Struct, field
from msgspec.structs import replace

from keepfast.errors import UsageError
from keepfast.model import Candidate, Event, Experiment, File, Files, Idea, Kind, Proposal, Switch
from keepfast.propose import ideas
from keepfast.propose.agents import RESERVE, AgentProposer, against, edited, estimate, room, wants_ideas
from keepfast.propose.base import VOIDS, Brief, Idle, Proposer
from keepfast.propose.edits import proposal, waiting
from keepfast.propose.flights import Flights, OneAtATime, Question
from keepfast.propose.outside import NAME
from keepfast.propose.standing import Rules, Standing, news, stand

FAIR = 4.0  # average turns with average gain that every agent is credited with, so that the first few do not decide
SPAN = 5.0  # the best agent gets at most so many times the share of an average one, and nobody less than the inverse


class Member(Struct, frozen=True):
    """`kind`: free (costs nothing, goes first), search (goes on in between, and while agents work) or agent."""

    proposer: Proposer | AgentProposer
    kind: str = "agent"
    weight: float = 1.0

    @property
    def name(self) -> str:
        return self.proposer.name


class Roster(Struct, frozen=True):
    """`flights`: where agents' turns are taken. `outside`: whether changes may be submitted to the run, which then waits for them."""

    members: tuple[Member, ...]
    rules: Rules = Rules()
    flights: Flights = field(default_factory=OneAtATime)
    outside: bool = False

    def __post_init__(self) -> None:
        names = [m.name for m in self.members]
        if twice := next((n for n in names if names.count(n) > 1), None):
            raise UsageError(f"`{twice}` is in the list of proposers twice", where="--proposer", next_step="name each one once")

    @property
    def name(self) -> str:
        return ",".join((*(m.name for m in self.members), *((NAME,) if self.outside else ())))

    def propose(self, brief: Brief) -> Proposal | Idle | None:
        """The next change: what was paid and not judged, what is free, a sweep of new tunables, and else search. Agents that are free get
        a turn; where turns are taken one at a time, only when there is nothing else."""
        heard = Heard(brief)
        self._land(heard)
        self._tell(heard.up_to_date())
        if not self.flights.at_once:
            self._launch(heard)
        found = self._waiting(heard) or self._cheap(heard.up_to_date())
        if found is None and self.flights.at_once:
            self._launch(heard)
            found = self._waiting(heard)
        brief = heard.up_to_date()
        return found or self._first("search", brief) or self._idle(brief)

    def close(self, brief: Brief) -> None:
        """The run is over: turns under way are ended, and what they cost is told."""
        for landed in self.flights.close():
            self._agent(landed.flight.name).land(landed, replace(brief, now=brief.desk.now()))

    def _cheap(self, brief: Brief) -> Proposal | None:
        return self._spoilt(brief) or self._first("free", brief) or (self._first("search", brief) if self._sweep(brief) else None)

    def standings(self, brief: Brief) -> tuple[Standing, ...]:
        """Every agent, in the order in which they were named."""
        return tuple(stand(m.name, brief, self.rules) for m in self._of("agent"))

    # ---------------------------------------------------------------------------------- what needs no agent

    def _of(self, kind: str) -> tuple[Member, ...]:
        return tuple(m for m in self.members if m.kind == kind)

    def _first(self, kind: str, brief: Brief) -> Proposal | None:
        made = (m.proposer.propose(brief) for m in self._of(kind) if not isinstance(m.proposer, AgentProposer))
        return next((p for p in made if isinstance(p, Proposal)), None)

    def _sweep(self, brief: Brief) -> bool:
        """Whether search has its turn: first some values of a new structure, then one between two agents' experiments."""
        names = {m.name for m in self._of("search")}
        structure = next((e.structure for e in brief.history if e.n == brief.champion.n), "")
        swept = sum(e.proposer in names and e.structure == structure for e in brief.history)
        last = brief.history[-1] if brief.history else None
        return swept < self.rules.sweep or (last is not None and last.proposer not in names)

    def _spoilt(self, brief: Brief) -> Proposal | None:
        """A change that was paid for and that the machine was not fit to judge, once more."""
        last = brief.history[-1] if brief.history else None
        if last is None or last.verdict.kind is not Kind.VOID or not last.edit:
            return None
        tried = sum(e.tree == last.tree for e in brief.history)
        files = brief.desk.candidate(last.n) if last.commit and tried < VOIDS else None
        if files is None:
            return None
        change = against(brief.task, brief.champion, files.files)
        return Proposal(last.title, last.proposer, change, last.source, last.idea, edit=last.edit)

    def _waiting(self, heard: Heard) -> Proposal | None:
        """The oldest edit that waits, against the champion of now; what cannot be is given back to its author."""
        for turn in waiting(brief := heard.up_to_date()):
            found = proposal(turn, brief)
            if isinstance(found, Proposal):
                return found
            heard.tell(Event("returned", found, n=len(brief.history) + 1, about=turn.edit))
        return None

    # ---------------------------------------------------------------------------------- turns

    def _land(self, heard: Heard) -> None:
        """What came back: turns are told, some are tried once more, questions answered."""
        for back in self.flights.back():
            if isinstance(back, Question):
                files = edited(back.flight.job.files, back.changed)
                back.answer(heard.tried(files, back.flight.name))
            elif again := self._agent(back.flight.name).land(back, self._committed(heard.up_to_date())):
                self.flights.launch(again)
                self._landed_at_once(heard)

    def _landed_at_once(self, heard: Heard) -> None:
        if self.flights.at_once:
            self._land(heard)

    def _launch(self, heard: Heard) -> None:
        """Turns for agents that are free, in order of merit; with one at a time until an edit came of it. Every switch is told."""
        asked = {f.name for f in self.flights.aloft} | {t.proposer for t in waiting(heard.up_to_date())}
        while next_ := self._next(heard.up_to_date(), asked):
            asked.add(next_.name)
            self._begin(next_, heard)
            self._landed_at_once(heard)
            self._tell(heard.up_to_date())
            if self.flights.at_once and waiting(heard.up_to_date()):
                return

    def _next(self, brief: Brief, asked: set[str]) -> Member | None:
        """Whose turn it is now; None when everybody is busy, asleep, or has had more than a share."""
        if len(self.flights.aloft) >= self.flights.most:
            return None
        ranked = self._ranked(brief)
        found = next((x for x in ranked if x.name not in asked), None)
        if found is None or (asked and not self.flights.at_once and self._ahead(found, ranked)):
            return None
        return next(m for m in self.members if m.name == found.name)

    def _ahead(self, one: Standing, ranked: list[Standing]) -> bool:
        """Whether it has cost more for its share than the best one will have after another turn, or nobody better is left out."""
        share = {x.name: self._share(x, ranked) for x in ranked}
        aloft = [f.name for f in self.flights.aloft]
        most = min((x.cost + aloft.count(x.name) + 1.0) / share[x.name] for x in ranked)
        demoted = one.state == "demoted" and any(x.state != "demoted" for x in ranked)
        return demoted or one.cost / share[one.name] > most

    def _begin(self, member: Member, heard: Heard) -> None:
        """The turn, with its share of the money: what those under way may spend is not there any more."""
        brief = self._committed(heard.up_to_date())
        free = self.flights.most - len(self.flights.aloft)
        idle = sum(x.awake for x in self.standings(brief)) - len({f.name for f in self.flights.aloft})
        least, left = estimate(member.name, brief) or 0.0, room(brief, RESERVE)
        if left is not None and (left <= 0 or left < least):
            return
        most = int(left / least) if left is not None and least else free
        brief = replace(brief, purse=replace(brief.purse, among=max(1, min(free, idle, most))))
        self.flights.launch(self._agent(member.name).begin(self._briefed(member, brief)))

    def _committed(self, brief: Brief) -> Brief:
        aloft = [f.share if f.share is not None else estimate(f.name, brief) or 0.0 for f in self.flights.aloft]
        return replace(brief, purse=replace(brief.purse, spent=brief.purse.spent + sum(aloft)))

    def _agent(self, name: str) -> AgentProposer:
        return next(p for m in self.members if m.name == name and isinstance(p := m.proposer, AgentProposer))

    # ---------------------------------------------------------------------------------- agents

    def _ranked(self, brief: Brief) -> list[Standing]:
        """Awake agents, the one to ask first in front. On a plateau the engine that was at work comes last."""
        awake = [x for x in self.standings(brief) if x.awake]
        share = {x.name: self._share(x, awake) for x in awake}
        ranked = sorted(awake, key=lambda x: (x.streak >= self.rules.misses, (x.cost + 1.0) / share[x.name]))
        holder, other = self._plateau(brief)
        return sorted(ranked, key=lambda x: (x.state == "demoted", x.name != holder if holder else x.name == other))

    def _share(self, one: Standing, awake: list[Standing]) -> float:
        """What part of the cost an agent should get: its weight, times what it gains for its cost against the average of all."""
        weight = next(m.weight for m in self.members if m.name == one.name)
        average = sum(max(0.0, x.gain) for x in awake) / max(sum(x.cost for x in awake), 1e-9)
        rate = (max(0.0, one.gain) + average * FAIR) / (one.cost + FAIR)
        quality = rate / average if average > 0 else 1.0
        return max(weight, 1e-6) * min(SPAN, max(1 / SPAN, quality))

    def _plateau(self, brief: Brief) -> tuple[str, str]:
        """On a plateau: who holds the champion (empty: nobody yet), and who was at work before. Empty names otherwise."""
        began = plateau(brief.history, self.rules.plateau)
        if began is None:
            return "", ""
        agents = [t for e in brief.notes if (t := e.turn) is not None]
        before, since = [t for t in agents if t.n <= began], [t for t in agents if t.n > began]
        worked = before[-1].proposer if before else ""
        if not since:
            return "", worked
        return (since[0].proposer, worked) if len(since) < self.rules.hold else ("", "")

    def _briefed(self, member: Member, brief: Brief) -> Brief:
        """The brief with the idea in hand and where to begin; on a plateau the champion alone, and a new conversation."""
        began = plateau(brief.history, self.rules.plateau)
        since = [t for e in brief.notes if (t := e.turn) is not None and began is not None and t.n > began]
        if began is not None and len(since) < self.rules.hold:
            fresh = not any(t.proposer == member.name for t in since)
            if fresh:
                why = f"{self.rules.plateau} experiments without a keep: it gets the champion fresh, with a free hand"
                self._say(brief, Switch(member.name, "fresh", why, len(brief.history) + 1))
            return replace(brief, idea=None, files=None, fresh=fresh)
        taken = self._in_work(brief)
        hand = ideas.in_hand(brief.ideas, brief.history, taken)
        if hand is None and (taken or self._asked_for_ideas()):
            return replace(brief, asks=False)
        if hand is None:
            self._ask_the_human(member, brief)
            return brief
        self._taken_over(member, brief, hand.idea)
        best = ideas.best(hand, brief.champion.n)
        return replace(brief, idea=hand.idea, files=_stored(best, brief))

    def _in_work(self, brief: Brief) -> set[int]:
        """Ideas that somebody works on, or whose last edit waits."""
        aloft = {f.brief.idea.n for f in self.flights.aloft if f.brief.idea}
        return aloft | {t.idea for t in waiting(brief) if t.idea is not None}

    def _asked_for_ideas(self) -> bool:
        return any(wants_ideas(f.brief) for f in self.flights.aloft)

    # ---------------------------------------------------------------------------------- what is said

    def _tell(self, brief: Brief) -> None:
        for now in self.standings(brief):
            if said := news(now, brief):
                self._say(brief, said)
            if now.blind and brief.purse.dollars is not None:
                why = f"what its turns cost is unknown: they are counted instead, at most {self.rules.blind_turns}"
                self._say(brief, Switch(now.name, "counted", why))

    def _say(self, brief: Brief, switch: Switch) -> None:
        """Tell a switch, once: not again after a resume."""
        same = (switch.proposer, switch.state, switch.n, switch.until)
        if any((s.proposer, s.state, s.n, s.until) == same for e in brief.notes if (s := e.switch) is not None):
            return
        brief.desk.tell(Event("switch", sentence(switch), n=switch.n, switch=switch))

    def _taken_over(self, member: Member, brief: Brief, idea: Idea) -> None:
        last = next((t for e in reversed(brief.notes) if (t := e.turn) is not None and t.idea == idea.n), None)
        if last is not None and last.proposer != member.name:
            why = f"it takes idea {idea.n} over from {last.proposer}"
            self._say(brief, Switch(member.name, "takes-over", why, len(brief.history) + 1))

    def _ask_the_human(self, member: Member, brief: Brief) -> None:
        """Once for each time the queue runs dry."""
        text = f'no idea is open: keepfast idea add "..."; until then {member.name} proposes some, marked as an agent\'s'
        if not any(e.kind == "idea" and e.n == len(brief.ideas) for e in brief.notes):
            brief.desk.tell(Event("idea", text, n=len(brief.ideas)))

    def _idle(self, brief: Brief) -> Idle | None:
        """Why there is nothing now, and when to ask again."""
        if aloft := self.flights.aloft:
            return Idle(f"{' and '.join(f.name for f in aloft)} at work", brief.now + self.rules.retry, news=self.flights.wait)
        if self.outside:
            return Idle("what is submitted through keepfast mcp", brief.now + self.rules.retry)
        standings = self.standings(brief)
        if not standings:
            return None
        waits = [x.until if x.state == "asleep" and x.until is not None else brief.now + self.rules.retry for x in standings if _may(x)]
        why = "; ".join(f"{x.name}: {x.why or 'brought nothing'}" for x in standings)
        if waits:
            return Idle(why, min(waits))
        broke = any(x.state == "broke" for x in standings)
        return Idle(why if broke else f"nothing is left to propose; {why}", state="budget" if broke else "deck-done")


class Heard(Struct):
    """A desk that also remembers what was told in this turn, as `brief` does not know of it."""

    brief: Brief
    events: tuple[Event, ...] = ()
    added: tuple[Idea, ...] = ()

    def tell(self, event: Event) -> None:
        self.brief.desk.tell(event)
        self.events = (*self.events, event)

    def idea(self, words: str) -> Idea:
        made = self.brief.desk.idea(words)
        self.added = (*self.added, made)
        return made

    def candidate(self, n: int) -> Candidate | None:
        return self.brief.desk.candidate(n)

    def now(self) -> float:
        return self.brief.desk.now()

    def put(self, data: bytes) -> str:
        return self.brief.desk.put(data)

    def get(self, name: str) -> bytes | None:
        return self.brief.desk.get(name)

    def tried(self, files: tuple[File, ...], who: str) -> str:
        return self.brief.desk.tried(files, who)

    def merged(self, edit: Files, parent: int) -> Files | str:
        return self.brief.desk.merged(edit, parent)

    def up_to_date(self) -> Brief:
        """The brief with what was told since, and what it cost."""
        b = self.brief
        cost = sum(e.turn.dollars or 0.0 for e in self.events if e.turn is not None)
        purse, now = replace(b.purse, spent=b.purse.spent + cost), max(b.now, self.now())
        return replace(b, notes=(*b.notes, *self.events), ideas=(*b.ideas, *self.added), purse=purse, now=now, desk=self)


def plateau(history: tuple[Experiment, ...], length: int) -> int | None:
    """The experiment with which the newest stretch of `length` without a keep was full; None when there is none."""
    began, dry = None, 0
    for e in history:
        dry = 0 if e.verdict.kept else dry + (e.verdict.kind is not Kind.VOID)
        if e.verdict.kept:
            began = None
        elif dry and dry % length == 0 and e.verdict.kind is not Kind.VOID:
            began = e.n
    return began


def sentence(switch: Switch) -> str:
    return f"{switch.proposer}: {switch.why}"


def _may(one: Standing) -> bool:
    return one.state not in ("off", "broke")


def _stored(best: Experiment | None, brief: Brief) -> Candidate | None:
    return brief.desk.candidate(best.n) if best is not None else None
