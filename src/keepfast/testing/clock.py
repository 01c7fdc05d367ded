"""A clock that is moved by hand. Sleeping moves it too, and costs nothing."""

from __future__ import annotations


class FakeClock:
    """`loop.Clock` for tests. `tick` seconds pass at every look at it, so that durations are not all zero."""

    def __init__(self, now: float = 1_700_000_000.0, tick: float = 0.0) -> None:
        self.now, self.tick = now, tick
        self.slept: list[float] = []

    def time(self) -> float:
        self.now += self.tick
        return self.now

    def monotonic(self) -> float:
        return self.time()

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
