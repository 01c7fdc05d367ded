"""The table of proposers: every turn is counted, an unknown cost is never nothing, and foreign words stay words."""

from __future__ import annotations

import json
from collections.abc import Callable

from msgspec.structs import replace

from keepfast.model import Budget, Event, Switch, TurnNote
from keepfast.report import facts, proposers, summary
from keepfast.report.book import Book
from keepfast.report.escape import width
from tests.report import samples


def turn(who: str, n: int, dollars: float | None, tokens: int = 1000, outcome: str = "edited") -> Event:
    return Event("turn", turn=TurnNote(who, outcome, n, 1, dollars=dollars, tokens=tokens))


def switch(who: str, state: str, why: str, n: int = 9) -> Event:
    return Event("switch", f"{who}: {why}", n=n, switch=Switch(who, state, why, n))


def book(*notes: Event, names: tuple[str, ...] = ("claude", "codex")) -> Book:
    """The sample run, its experiments proposed by agents in turn."""
    made = samples.experiments()
    own = tuple(replace(e, proposer=names[e.n % len(names)]) if e.n > 1 else e for e in made)
    return Book(samples.run(), own, notes=notes, task=replace(samples.task(), budget=Budget(40, dollars=20.0)))


NOTES = (
    *(turn("claude", n, 0.25) for n in range(2, 12, 2)),
    turn("codex", 3, None),
    turn("codex", 5, 0.5, outcome="timed-out"),
    turn("pi", 6, 0.0, 0, outcome="not-installed"),
    switch("pi", "off", "it is not installed: off until the run is resumed", 6),
    switch("codex", "counted", "what its turns cost is unknown", 7),
    switch("codex", "off", "it refused c 2 times \x1b[31m: off for c"),
)


def test_every_turn_is_counted() -> None:
    claude, codex, pi = proposers.facts(book(*NOTES))
    assert (claude.name, claude.turns, claude.dollars, claude.tokens, claude.unknown) == ("claude", 5, 1.25, 5000, 0)
    assert (codex.fruitless, codex.dollars, codex.unknown, codex.percent_a_dollar) == (1, 0.5, 1, None)
    assert (codex.state, codex.attempts) == ("off", sum(e.n % 2 == 1 for e in samples.experiments() if e.n > 1) + 1)
    assert (pi.attempts, pi.bad, pi.kept, pi.state) == (1, 1.0, 0, "off")
    assert claude.percent_a_dollar == round(claude.gain_percent / 1.25, 6)
    assert proposers.paid(book(*NOTES)) == (1.75, 7000, 1)


def test_what_an_agent_costs_without_turns_is_its_experiments() -> None:
    plain = book(names=("mine",))
    paid = replace(plain, experiments=tuple(replace(e, dollars=0.5, tokens=10) for e in plain.experiments if e.n > 1))
    (mine,) = proposers.facts(paid)
    assert (mine.dollars, mine.tokens) == (0.5 * mine.attempts, 10 * mine.attempts)


def test_the_first_screen(golden: Callable[[str, str], None]) -> None:
    golden("morning-agents.txt", "\n".join(summary.morning(book(*NOTES))) + "\n")


def test_the_roster(golden: Callable[[str, str], None]) -> None:
    said = summary.roster(book(*NOTES))
    golden("roster.txt", "\n".join(said) + "\n")
    golden("roster.json", facts.encode(facts.roster(book(*NOTES))) + "\n")
    assert max(map(width, said)) <= 100
    assert "\x1b" not in "".join(said)


def test_a_run_of_nobody() -> None:
    empty = Book(samples.run())
    assert summary.roster(empty) == ["nobody has proposed anything yet"]
    assert json.loads(facts.encode(facts.roster(empty)))["proposers"] == []


def test_names_of_any_length_fit() -> None:
    long = book(*NOTES, names=("chat:a-very-long-model-name-that-goes-on@http://127.0.0.1:8000/v1", "codex"))
    assert max(map(width, summary.roster(long, 80))) <= 80
