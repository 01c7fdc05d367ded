"""Turns in threads: what comes back, questions within a turn, and the end."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from keepfast.propose.agent import Job, Limits, Outcome, Turn
from keepfast.propose.base import Brief
from keepfast.propose.flights import ENOUGH, GONE, Flight, Flights, Landed, OneAtATime, Question, Threads

CHANGED = (("k.c", b"x"),)
LONG_S = 30.0


class Agent:
    """An agent whose turn is a function of the job."""

    def __init__(self, name: str, turn: object) -> None:
        self.name, self._turn = name, turn

    def turn(self, job: Job) -> Turn:
        return self._turn(job)  # type: ignore[operator,no-any-return]


@pytest.fixture
def told(make: SimpleNamespace) -> Brief:
    return Brief(make.task(), make.candidate())


def flight(told: Brief, turn: object, name: str = "a", tries: int = 3) -> Flight:
    return Flight(Agent(name, turn), told, Job((), (), "", limits=Limits(tries=tries)))


def one(flights: Flights) -> Landed | Question:
    assert flights.wait(LONG_S)
    (found,) = flights.back()
    return found


def test_one_at_a_time_has_landed_when_it_was_launched(told: Brief) -> None:
    flights = OneAtATime()
    flights.launch(flight(told, lambda job: Turn(Outcome.NOTHING)))
    assert flights.wait(0.0)
    assert [x.turn.outcome for x in flights.back() if isinstance(x, Landed)] == [Outcome.NOTHING]
    assert (flights.back(), flights.aloft, flights.close(), flights.wait(0.0)) == ((), (), (), False)


def test_turns_are_at_work_side_by_side(told: Brief) -> None:
    flights, both = Threads(2), threading.Barrier(2, timeout=LONG_S)

    def turn(job: Job) -> Turn:
        both.wait()  # nobody gets past it alone
        return Turn(Outcome.NOTHING)

    flights.launch(flight(told, turn, "a"))
    flights.launch(flight(told, turn, "b"))
    landed: list[str] = []
    while len(landed) < 2:
        assert flights.wait(LONG_S)
        landed += [x.flight.name for x in flights.back()]
    assert sorted(landed) == ["a", "b"]
    assert flights.aloft == ()


def test_a_question_waits_for_its_answer(told: Brief) -> None:
    flights, heard = Threads(1), list[str]()

    def turn(job: Job) -> Turn:
        assert job.ask is not None
        heard.append(job.ask(CHANGED))
        return Turn(Outcome.EDITED, changed=CHANGED)

    flights.launch(flight(told, turn))
    asked = one(flights)
    assert isinstance(asked, Question)
    assert (asked.changed, asked.flight.name, [f.name for f in flights.aloft]) == (CHANGED, "a", ["a"])
    asked.answer("right")
    assert isinstance(one(flights), Landed)
    assert heard == ["right"]


def test_there_are_only_so_many_tries_in_a_turn(told: Brief) -> None:
    flights, heard = Threads(1), list[str]()

    def turn(job: Job) -> Turn:
        assert job.ask is not None
        heard.extend(job.ask(CHANGED) for _ in range(3))
        return Turn(Outcome.NOTHING)

    flights.launch(flight(told, turn, tries=1))
    asked = one(flights)
    assert isinstance(asked, Question)
    asked.answer("wrong")
    assert isinstance(one(flights), Landed)
    assert heard == ["wrong", ENOUGH, ENOUGH]


def test_without_tries_there_is_nobody_to_ask(told: Brief) -> None:
    flights, asks = Threads(1), list[object]()

    def turn(job: Job) -> Turn:
        asks.append(job.ask)
        return Turn(Outcome.NOTHING)

    flights.launch(flight(told, turn, tries=0))
    one(flights)
    assert asks == [None]


def test_the_end_of_the_run_ends_turns_and_answers_nobody(told: Brief) -> None:
    flights, heard = Threads(2), list[str]()

    def asking(job: Job) -> Turn:
        assert job.ask is not None
        heard.append(job.ask(CHANGED))
        return Turn(Outcome.STOPPED)

    def working(job: Job) -> Turn:
        begun.set()
        while not job.limits.ended():
            pause.wait(0.01)
        return Turn(Outcome.STOPPED, "the run ended")

    begun, pause = threading.Event(), threading.Event()
    flights.launch(flight(told, working, "works"))
    flights.launch(flight(told, asking, "asks"))
    assert begun.wait(LONG_S)
    assert flights.wait(LONG_S)
    assert sorted(x.flight.name for x in flights.close()) == ["asks", "works"]
    assert (flights.aloft, heard, flights.close()) == ((), [GONE], ())


def test_an_error_of_an_agent_is_raised_in_the_run(told: Brief) -> None:
    def turn(job: Job) -> Turn:
        raise ValueError("mend the task")

    flights = Threads(1)
    flights.launch(flight(told, turn))
    assert flights.wait(LONG_S)
    with pytest.raises(ValueError, match="mend the task"):
        flights.back()
    assert flights.aloft == ()
