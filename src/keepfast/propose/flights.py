"""Turns in flight: agents at work while the run goes on, each in a thread of its own, and what comes back from them.

Owns the threads and the one place where they meet the run: a turn that landed, or a question to the judge. Nothing here touches ledger,
git or judge: the run's own thread takes what came back, and answers. Must not know what a turn is about.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from keepfast.propose.agent import Agent, Ask, Changed, Job, Turn
from keepfast.propose.base import Brief

GONE = "The run ended: nothing is judged any more."
ENOUGH = "No more tries are possible in this turn: hand in what you have."
GRACE_S = 10.0  # that turns have to end in, once the run is over


class Flight(Struct, frozen=True):
    """A turn under way. `brief` is what it began with; `attempt` counts from 0; `share`: dollars that it may spend, None for no limit."""

    agent: Agent
    brief: Brief
    job: Job
    attempt: int = 0

    @property
    def name(self) -> str:
        return self.agent.name

    @property
    def share(self) -> float | None:
        return self.job.limits.dollars


class Landed(Struct, frozen=True):
    flight: Flight
    turn: Turn


class Question(Struct, frozen=True):
    """A try inside a turn, until `answer` is called. Whoever asked waits."""

    flight: Flight
    changed: Changed
    answer: Callable[[str], None]


class Flights(Protocol):
    """Where turns are taken. `most`: how many side by side; `at_once`: a turn is over when `launch` returns; `aloft`: those under way."""

    @property
    def most(self) -> int: ...

    @property
    def at_once(self) -> bool: ...

    @property
    def aloft(self) -> tuple[Flight, ...]: ...

    def launch(self, flight: Flight) -> None: ...

    def back(self) -> tuple[Landed | Question, ...]:
        """What came back since, in order; never waits."""

    def wait(self, seconds: float) -> bool:
        """Whether something came back, now or within so many seconds."""

    def close(self) -> tuple[Landed, ...]:
        """End what is under way; the turns that still came back."""


class OneAtATime:
    """A turn is over when `launch` returns: the run waits for its agent. Questions find nobody who could answer."""

    most = 1
    at_once = True

    def __init__(self) -> None:
        self._landed: list[Landed | Question] = []

    @property
    def aloft(self) -> tuple[Flight, ...]:
        return ()

    def launch(self, flight: Flight) -> None:
        self._landed.append(Landed(flight, flight.agent.turn(flight.job)))

    def back(self) -> tuple[Landed | Question, ...]:
        found, self._landed = tuple(self._landed), []
        return found

    def wait(self, seconds: float) -> bool:
        return bool(self._landed)

    def close(self) -> tuple[Landed, ...]:
        return ()


class Threads:
    """Each turn in a thread of its own, at most `most` of them."""

    at_once = False

    def __init__(self, most: int) -> None:
        self.most = most
        self._aloft: list[Flight] = []
        self._back: list[Landed | Question | Exception] = []
        self._news = threading.Condition()
        self._over = threading.Event()

    @property
    def aloft(self) -> tuple[Flight, ...]:
        with self._news:
            return tuple(self._aloft)

    def launch(self, flight: Flight) -> None:
        limits = replace(flight.job.limits, ended=self._over.is_set)
        flown = replace(flight, job=replace(flight.job, limits=limits))
        with self._news:
            self._aloft.append(flown)
        threading.Thread(target=self._fly, args=(flown,), name=f"turn of {flight.name}", daemon=True).start()

    def back(self) -> tuple[Landed | Question, ...]:
        with self._news:
            found, self._back = self._back, []
        if error := next((x for x in found if isinstance(x, Exception)), None):
            raise error
        return tuple(x for x in found if not isinstance(x, Exception))

    def wait(self, seconds: float) -> bool:
        with self._news:
            return self._news.wait_for(lambda: bool(self._back), seconds)

    def close(self) -> tuple[Landed, ...]:
        self._over.set()
        with self._news:
            self._news.wait_for(lambda: not self._aloft, GRACE_S)
            found, self._back = self._back, []
            return tuple(x for x in found if isinstance(x, Landed))

    # ---------------------------------------------------------------------------------- in the turn's thread

    def _fly(self, flight: Flight) -> None:
        job = replace(flight.job, ask=self._asking(flight)) if flight.job.limits.tries else flight.job
        try:
            found: Landed | Exception = Landed(flight, flight.agent.turn(job))
        except Exception as error:  # noqa: BLE001  raised again in the run's own thread
            found = error
        with self._news:
            self._aloft = [f for f in self._aloft if f is not flight]
            self._back.append(found)
            self._news.notify_all()

    def _asking(self, flight: Flight) -> Ask:
        left = [flight.job.limits.tries]

        def ask(changed: Changed) -> str:
            if not left[0]:
                return ENOUGH
            left[0] -= 1
            return self._asked(flight, changed)

        return ask

    def _asked(self, flight: Flight, changed: Changed) -> str:
        said, answered = list[str](), threading.Event()

        def answer(words: str) -> None:
            said.append(words)
            answered.set()

        with self._news:
            if self._over.is_set():
                return GONE
            self._back.append(Question(flight, changed, answer))
            self._news.notify_all()
        while not answered.wait(0.2):
            if self._over.is_set():
                return GONE
        return said[0]
