"""The roster's choices, from histories made by hand: what it earns for what it costs decides, and every standing has its reason."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from keepfast.errors import UsageError
from keepfast.model import Event, Experiment, Reason, TurnNote, Verdict
from keepfast.propose.agent import Outcome
from keepfast.propose.base import Brief, Idle, Purse
from keepfast.propose.deck import DeckProposer
from keepfast.propose.roster import Member, Roster, plateau
from keepfast.propose.search import SearchProposer
from keepfast.propose.sequence import Crew, named
from keepfast.propose.standing import Rules, news, stand
from keepfast.testing import ScriptedAgent, edit, fault, keep, proposer, reject, revert, void

EDITED = Outcome.EDITED.value
Tried = tuple[str, Verdict, float | None]


def turn(who: str, n: int, dollars: float | None = 0.1, outcome: str = EDITED, **more: object) -> Event:
    fields: dict[str, object] = {"tokens": 100, "seconds": 20.0, "when": float(n)} | more
    return Event("turn", turn=TurnNote(who, outcome, n, 1, dollars=dollars, **fields))  # type: ignore[arg-type]


def brief(make: SimpleNamespace, *tried: Tried, notes: tuple[Event, ...] = (), **more: object) -> Brief:
    history = [Experiment(1, "start", "", "", None, "t", "c", 0, replace(keep(1.0), reason=Reason.START), 0.0, 0.0)]
    said = []
    for n, (who, verdict, dollars) in enumerate(tried, start=2):
        said.append(turn(who, n, dollars))
        history.append(Experiment(n, who, "", "", None, f"t{n}", "", 1, verdict, 0.0, 0.0))
    return Brief(make.task(), make.candidate(), tuple(history), notes=(*said, *notes), **more)  # type: ignore[arg-type]


def roster(*names: str, weights: tuple[float, ...] = ()) -> Roster:
    made = (Member(proposer(ScriptedAgent(n, [edit("k.c", b"x")])), weight=w) for n, w in zip(names, weights or (1.0,) * 9, strict=False))
    return Roster(tuple(made))


def order(who: Roster, told: Brief) -> list[str]:
    return [x.name for x in who._ranked(told)]


# --------------------------------------------------------------------------------------------- choosing


def test_who_costs_less_for_the_same_is_asked_first(make: SimpleNamespace) -> None:
    told = brief(make, ("dear", revert(), 1.0), ("cheap", revert(), 0.1))
    assert order(roster("dear", "cheap"), told) == ["cheap", "dear"]


def test_who_earns_more_for_the_same_is_asked_first(make: SimpleNamespace) -> None:
    told = brief(make, ("a", revert(), 0.1), ("b", keep(1.2), 0.1), ("a", revert(), 0.1), ("b", revert(), 0.1))
    assert order(roster("a", "b"), told) == ["b", "a"]


def test_time_is_a_cost_as_well(make: SimpleNamespace) -> None:
    slow = brief(make, notes=(turn("slow", 9, seconds=900.0), turn("quick", 9, seconds=9.0)))
    assert order(roster("slow", "quick"), slow) == ["quick", "slow"]


def test_a_cost_that_nobody_knows_is_an_average_turn(make: SimpleNamespace) -> None:
    told = brief(make, ("blind", revert(), None), ("dear", revert(), 1.0), ("cheap", revert(), 0.2))
    assert order(roster("dear", "blind", "cheap"), told) == ["cheap", "blind", "dear"]


@pytest.mark.parametrize(("weights", "share"), [((1.0, 1.0), 20), ((3.0, 1.0), 30), ((1.0, 3.0), 10)])
def test_weights_are_shares_of_the_cost(make: SimpleNamespace, weights: tuple[float, ...], share: int) -> None:
    who, tried = roster("a", "b", weights=weights), list[Tried]()
    rules = Rules(plateau=1000)
    for _ in range(40):
        tried.append((order(replace(who, rules=rules), brief(make, *tried))[0], revert(), 0.1))
    assert [t[0] for t in tried].count("a") == pytest.approx(share, abs=1)


def test_a_bad_spell_starves_nobody(make: SimpleNamespace) -> None:
    who, tried = replace(roster("lucky", "poor"), rules=Rules(plateau=1000)), list[Tried]()
    for _ in range(100):
        name = order(who, brief(make, *tried))[0]
        tried.append((name, keep(1.05) if name == "lucky" else revert(), 0.1))
    assert 3 <= [t[0] for t in tried].count("poor") <= 30


def test_one_that_left_nothing_twice_lets_the_others_go_first(make: SimpleNamespace) -> None:
    nothing = tuple(turn("a", 2, 0.0, Outcome.NOTHING.value) for _ in range(2))
    told = brief(make, *[("b", revert(), 0.1)] * 3, notes=nothing)
    assert order(roster("a", "b"), told) == ["b", "a"]


# --------------------------------------------------------------------------------------------- standings


def state(told: Brief, rules: Rules = Rules()) -> str:  # noqa: B008
    return stand("a", told, rules).state


def outcomes(*values: Outcome, **more: object) -> tuple[Event, ...]:
    return tuple(turn("a", 2, 0.0, v.value, **more) for v in values)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((Outcome.REFUSED,), "on"),
        ((Outcome.REFUSED, Outcome.EDITED, Outcome.REFUSED), "off"),
        ((Outcome.REFUSED, *[Outcome.EDITED] * 5, Outcome.REFUSED), "on"),  # one in six
        ((Outcome.AUTHENTICATION,), "off"),
        ((Outcome.MISSING,), "off"),
        ((Outcome.AUTHENTICATION, Outcome.EDITED), "on"),
        ((Outcome.CRASHED,) * 5, "on"),
        ((Outcome.CRASHED,) * 6, "off"),
        ((Outcome.CRASHED,) * 5 + (Outcome.EDITED,), "on"),
        ((Outcome.RATE_LIMITED,), "asleep"),
        ((Outcome.RATE_LIMITED,) * 9, "asleep"),  # nobody's fault
        ((Outcome.RATE_LIMITED, Outcome.EDITED), "on"),
    ],
)
def test_outcomes(make: SimpleNamespace, values: tuple[Outcome, ...], expected: str) -> None:
    assert state(brief(make, notes=outcomes(*values))) == expected


@pytest.mark.parametrize(("value", "expected"), [(Outcome.AUTHENTICATION, "on"), (Outcome.CRASHED, "on"), (Outcome.REFUSED, "off")])
def test_what_a_user_can_mend_is_forgiven_on_resume(make: SimpleNamespace, value: Outcome, expected: str) -> None:
    assert state(brief(make, notes=outcomes(*[value] * 6), since=100.0)) == expected


@pytest.mark.parametrize(
    ("until", "now", "expected"), [(500.0, 499.0, "asleep"), (500.0, 500.0, "on"), (None, 301.0, "asleep"), (None, 302.0, "on")]
)
def test_sleeping(make: SimpleNamespace, until: float | None, now: float, expected: str) -> None:
    assert state(brief(make, notes=outcomes(Outcome.RATE_LIMITED, until=until), now=now)) == expected


def test_a_nap_grows_to_an_hour(make: SimpleNamespace) -> None:
    naps = [stand("a", brief(make, notes=outcomes(*[Outcome.RATE_LIMITED] * i)), Rules()).until for i in (1, 2, 3, 9)]
    assert naps == [302.0, 602.0, 1202.0, 3602.0]


@pytest.mark.parametrize(("cheats", "expected"), [(2, "on"), (3, "demoted")])
def test_cheats(make: SimpleNamespace, cheats: int, expected: str) -> None:
    cheat = reject(Reason.STATEFUL, cheat=True)
    tried: list[Tried] = [("a", cheat, 0.1)] * cheats + [("a", revert(), 0.1)] * (6 - cheats)
    assert state(brief(make, *tried)) == expected
    assert state(brief(make, *tried, *[("a", revert(), 0.1)] * 6)) == "on"


@pytest.mark.parametrize(
    ("dollars", "spent", "expected"),
    [(None, 99.0, "on"), (10.0, 0.0, "on"), (10.0, 8.5, "on"), (10.0, 8.51, "broke"), (10.0, 9.0, "broke"), (0.5, 0.0, "broke")],
)
def test_money(make: SimpleNamespace, dollars: float | None, spent: float, expected: str) -> None:
    told = brief(make, ("a", revert(), 0.1), ("a", revert(), 0.5), ("a", revert(), 3.0), purse=Purse(dollars, spent))
    assert state(told) == expected  # the median turn is 0.5


def test_a_standing_is_said_once(make: SimpleNamespace) -> None:
    told = brief(make, notes=outcomes(Outcome.MISSING))
    said = news(stand("a", told, Rules()), told)
    assert said is not None
    again = replace(told, notes=(*told.notes, Event("switch", switch=said)))
    assert news(stand("a", again, Rules()), again) is None
    mended = replace(again, since=100.0)
    assert (back := news(stand("a", mended, Rules()), mended)) is not None
    assert (back.state, back.why) == ("on", "it is off no longer")


@pytest.mark.parametrize(("tried", "began"), [(14, None), (15, 16), (29, 16), (30, 31)])
def test_plateau(make: SimpleNamespace, tried: int, began: int | None) -> None:
    assert plateau(brief(make, *[("a", revert(), 0.1)] * tried).history, 15) == began
    assert plateau(brief(make, *[("a", revert(), 0.1)] * tried, ("a", keep(1.1), 0.1)).history, 15) is None
    assert plateau(brief(make, *[("a", void(), 0.1)] * tried).history, 15) is None


# --------------------------------------------------------------------------------------------- nothing to propose


def test_why_nothing_comes_is_said(make: SimpleNamespace) -> None:
    absent = Roster((Member(proposer(ScriptedAgent("a", [fault(Outcome.MISSING)]))),))
    found = absent.propose(brief(make))
    assert isinstance(found, Idle)
    assert (found.until, found.state) == (None, "deck-done")
    assert found.why == "nothing is left to propose; a: it is not installed: off until the run is resumed"


def test_a_name_twice() -> None:
    with pytest.raises(UsageError, match="`a` is in the list of proposers twice"):
        roster("a", "a")


# --------------------------------------------------------------------------------------------- names


def crew() -> Crew:
    return Crew(lambda b: ("", ()), lambda name: ScriptedAgent(name, [edit("k.c", b"x")]))


def test_agents_make_a_roster() -> None:
    found = named("deck, search, claude=2.5, chat:m=1@http://127.0.0.1:1/v1", crew=crew())
    assert isinstance(found, Roster)
    assert [(m.name, m.kind, m.weight) for m in found.members] == [
        ("deck", "free", 1.0), ("search", "search", 1.0), ("claude", "agent", 2.5), ("chat:m=1@http://127.0.0.1:1/v1", "agent", 1.0),
    ]  # fmt: skip
    assert (found.members[0].proposer, found.members[1].proposer) == (DeckProposer(), SearchProposer())


@pytest.mark.parametrize(
    ("text", "match"), [("claude=0", "a weight is above 0"), ("cluade", "Did you mean `claude`"), ("deck=2", "unknown proposer `deck=2`")]
)
def test_names_that_are_none(text: str, match: str) -> None:
    with pytest.raises(UsageError, match=match):
        named(text, crew=crew())


def test_an_agent_without_a_crew() -> None:
    with pytest.raises(UsageError, match="nobody to write its brief"):
        named("claude")
