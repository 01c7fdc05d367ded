"""How each agent of a roster stands: what it tried, earned and cost, and whether it is on, off, asleep, demoted or out of money.

Pure functions of the brief: the same history and notes give the same standing, so a resumed run has the same roster. What a user can
mend between two sessions (a key, an installation, a broken network) is forgiven when the run is resumed. Must not know any proposer.
"""

from __future__ import annotations

from msgspec import Struct

from keepfast.model import Experiment, Reason, Switch, TurnNote
from keepfast.propose.agent import Outcome
from keepfast.propose.agents import RESERVE, estimate, room, turns
from keepfast.propose.base import Brief
from keepfast.propose.edits import led_to
from keepfast.propose.ideas import measure

STANDINGS = ("on", "off", "asleep", "demoted", "broke")


class Rules(Struct, frozen=True):
    """The numbers of a roster."""

    misses: int = 2  # refusals of the language, or candidates in another one, among its last `window` turns: off for that language
    cheats: int = 3  # cheats among its last `window` experiments: demoted
    window: int = 6
    fruitless: int = 6  # turns in a row without an edit: off until the run is resumed
    nap: float = 300.0  # seconds of sleep when a rate limit does not say when it resets; doubled each time, to an hour
    plateau: int = 15  # experiments of all without a keep: another engine gets the champion fresh
    hold: int = 3  # turns for which that engine keeps it
    sweep: int = 8  # experiments of search on a new structure before the agents go on
    blind_turns: int = 200  # turns of unknown cost, where there is a budget of money
    retry: float = 60.0  # seconds until agents that brought nothing are asked again


class Standing(Struct, frozen=True):
    """One agent. `gain` is the sum of its keeps as a log-ratio, positive; `cost` is in turns of average cost and length."""

    name: str
    state: str
    why: str
    until: float | None = None
    turns: int = 0
    blind: int = 0  # turns of unknown cost
    streak: int = 0  # turns in a row without an edit
    gain: float = 0.0
    cost: float = 0.0

    @property
    def awake(self) -> bool:
        return self.state in ("on", "demoted")


def stand(name: str, brief: Brief, rules: Rules) -> Standing:
    """How the agent `name` stands, the gravest thing first."""
    past = turns(name, brief)
    state, why, until = next(found for check in CHECKS if (found := check(name, brief, rules)) is not None)
    return Standing(
        name=name,
        state=state,
        why=why,
        until=until,
        turns=len(past),
        blind=_blind(past),
        streak=_streak(past, 0.0),
        gain=sum(-(measure(e.verdict) or 0.0) for e in _own(name, brief) if e.verdict.kept),
        cost=_cost(name, brief),
    )


Found = tuple[str, str, float | None] | None


def _unable(name: str, brief: Brief, rules: Rules) -> Found:
    last = next((t for t in turns(name, brief)[::-1] if t.when >= brief.since), None)
    if last is None or last.outcome not in (Outcome.AUTHENTICATION, Outcome.MISSING):
        return None
    what = "it is not installed" if last.outcome == Outcome.MISSING else "its server does not accept it (authentication)"
    return "off", f"{what}: off until the run is resumed", None


def _speechless(name: str, brief: Brief, rules: Rules) -> Found:
    missed = sum(_missed(t, brief) for t in turns(name, brief)[-rules.window :])
    if missed < rules.misses:
        return None
    languages = " or ".join(brief.task.languages)
    return "off", f"it refused {languages} or wrote something else {missed} times: off for {languages}", None


def _fruitless(name: str, brief: Brief, rules: Rules) -> Found:
    streak = _streak(turns(name, brief), brief.since)
    return ("off", f"{streak} turns in a row left no edit: off until the run is resumed", None) if streak >= rules.fruitless else None


def _broke(name: str, brief: Brief, rules: Rules) -> Found:
    """Before the money is overspent: what is left, less the reserve, against the median of its turns."""
    left, likely = room(brief, RESERVE), estimate(name, brief) or 0.0
    if left is None:
        return None
    if left <= 0 or left < likely:
        of = f"of ${brief.purse.dollars or 0.0:.2f}, ${max(0.0, (brief.purse.dollars or 0.0) - brief.purse.spent):.2f} is left"
        return "broke", f"{of}, {100 * RESERVE:.0f} % of it a reserve, and a turn costs about ${likely:.2f}", None
    blind = _blind(turns(name, brief))
    if blind >= rules.blind_turns:
        return "broke", f"{blind} turns of unknown cost, and there is a budget of money: no more of them", None
    return None


def _asleep(name: str, brief: Brief, rules: Rules) -> Found:
    past = turns(name, brief)
    if not past or past[-1].outcome != Outcome.RATE_LIMITED:
        return None
    row = next((i for i, t in enumerate(past[::-1]) if t.outcome != Outcome.RATE_LIMITED), len(past))
    until = past[-1].until if past[-1].until is not None else past[-1].when + min(3600.0, rules.nap * 2 ** (row - 1))
    return ("asleep", "rate limited: it sleeps until its limit resets, the others go on", until) if brief.now < until else None


def _cheating(name: str, brief: Brief, rules: Rules) -> Found:
    cheats = sum(e.verdict.cheat for e in _own(name, brief)[-rules.window :])
    if cheats < rules.cheats:
        return None
    return "demoted", f"{cheats} cheats in its last {rules.window} experiments: asked only when nobody better is left", None


def _on(name: str, brief: Brief, rules: Rules) -> Found:
    return "on", "", None


CHECKS = (_unable, _speechless, _fruitless, _broke, _asleep, _cheating, _on)


# --------------------------------------------------------------------------------------------- parts


def _own(name: str, brief: Brief) -> list[Experiment]:
    return [e for e in brief.history if e.proposer == name]


def _missed(turn: TurnNote, brief: Brief) -> bool:
    """Whether the turn refused, or led to a candidate in another language than was asked for."""
    if turn.outcome == Outcome.REFUSED:
        return True
    found = led_to(turn, brief)
    return found is not None and found.verdict.reason is Reason.LANGUAGE


def _streak(past: tuple[TurnNote, ...], since: float) -> int:
    """Turns in a row at the end, and since then, that left no edit. A rate limit is nobody's fault and counts neither way."""
    counted = [t for t in past if t.outcome != Outcome.RATE_LIMITED and t.when >= since]
    return next((i for i, t in enumerate(counted[::-1]) if t.outcome == Outcome.EDITED), len(counted))


def _blind(past: tuple[TurnNote, ...]) -> int:
    return sum(t.dollars is None and (t.tokens > 0 or t.outcome == Outcome.EDITED) for t in past)


def _cost(name: str, brief: Brief) -> float:
    """Half of it money, half of it time, each in units of the average turn of all; a turn of unknown price costs one."""
    every = [e.turn for e in brief.notes if e.turn is not None]
    prices = [t.dollars for t in every if t.dollars]
    price = sum(prices) / len(prices) if prices else 0.0
    length = sum(_seconds(t, brief) for t in every) / len(every) if every else 0.0
    own = [t for t in every if t.proposer == name]
    money = sum(1.0 if t.dollars is None or not price else t.dollars / price for t in own)
    seconds = sum(_seconds(t, brief) / length if length else 1.0 for t in own)
    return (money + seconds) / 2


def _seconds(turn: TurnNote, brief: Brief) -> float:
    """Of the turn, and of judging what it led to."""
    found = led_to(turn, brief)
    return turn.seconds + (found.verdict.seconds if found is not None else 0.0)


# --------------------------------------------------------------------------------------------- what is said


def told(name: str, brief: Brief) -> Switch | None:
    """The newest standing that was said of the agent."""
    return next((s for e in reversed(brief.notes) if (s := e.switch) and s.proposer == name and s.state in STANDINGS), None)


def news(now: Standing, brief: Brief) -> Switch | None:
    """What has to be said of the agent; None when it stands as was said last, or as everyone begins."""
    before = told(now.name, brief)
    if (before.state, before.until) == (now.state, now.until) if before else now.state == "on":
        return None
    why = now.why or (f"it is {before.state} no longer" if before else "")
    return Switch(now.name, now.state, why, len(brief.history) + 1, now.until)
