"""What calls do to the blocks of a plan, the memory that lives on between them; and that memory as many more calls would leave it.

Blocks are restored before every launch, so what goes wrong only after more calls than a launch has would never be seen. Words that
move by the same step in every call are set to where they will be; those that hold no more than a place in a short cycle stay in step;
whatever else calls leave behind is overwritten, for a call that is right does not read it. Must not know verdict rules.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import numpy as np
from msgspec import Struct

from keepfast.launcher import tables
from keepfast.launcher.arm import Arm
from keepfast.launcher.case import Case
from keepfast.launcher.slots import NAN, Body, Slots, Turn

SINGLES = 24  # calls after each of which the blocks are looked at; then two chains
DIFFERENT = 8  # of so many sets
SETTLING = 8  # calls that words may need to come into their cycle
CYCLES = range(1, 9)  # calls after which they are as before, in it
STEP = math.lcm(*CYCLES)  # wound forward by whole cycles
WOUND = 4  # launches with counters wound forward, each by some ten times more than the one before
SURE = 1 << 14  # calls that every kernel has to survive, also one whose counters have come round by then
MOST = 1 << 22  # words that are looked at closely; what is beyond counts as changing otherwise
LARGE = 0x7F7F7F7F  # a large number, of 32 bits whole or not, and of 16
POISONS = (NAN, LARGE)
HALF = 1 << 31
WHOLE, FLOAT = np.dtype(np.uint32), np.dtype(np.float32)


Places = tuple[Sequence[int], np.ndarray | None]  # rows of blocks, and which words of them, counted from the first; None: all


class Changed(Struct, frozen=True):
    """How many words of 32 bits change, and how: by steps; by the number of calls alone; otherwise."""

    counting: int
    numbered: int
    other: int


class Moment(Struct, frozen=True):
    """Words of the blocks after `calls` calls of a launch."""

    calls: int
    words: np.ndarray


class Steps(Struct, frozen=True):
    """Words that move by the same step in every call, as numbers of one kind: where they are, their value after SINGLES calls, the step."""

    kind: np.dtype[Any]
    at: np.ndarray
    value: np.ndarray
    step: np.ndarray


class Winding:
    """The blocks of one arm. `look` comes first."""

    def __init__(self, case: Case, slots: Slots, arm: Arm, rng: Random) -> None:
        self.case, self.slots, self.arm, self.rng, self.device = case, slots, arm, rng, case.device
        self.rows = arm.hands.own.block_rows
        self.starts = np.cumsum([0, *(_words(row) for row in self.rows)])  # the first word of each row
        self.steps: list[Steps] = []
        self.cycles = (np.zeros(0, np.int64), np.zeros(0, np.uint32))  # where, and what they hold after whole cycles
        self.other = np.zeros(0, np.int64)

    # ---------------------------------------------------------------------------------------- looking

    def look(self, calls: int) -> Changed:
        """First what a call, another call, and all calls or at least SETTLING change at all, each from the start; then, closely, those
        words whose change no contents tell."""
        every = range(len(self.rows))
        ones = [self._looked(calls, (every, None), singles=1) for _ in range(2)]
        whole = self._looked(calls, (every, None), chains=-(-SETTLING // calls))
        changed = [m[-1].words != m[0].words for m in (*ones, whole)]
        by_contents = (changed[0] | changed[1]) & (ones[0][-1].words != ones[1][-1].words)
        anyhow = changed[0] | changed[1] | changed[2]
        self.other = np.flatnonzero(by_contents)
        numbered = self._close(calls, np.flatnonzero(anyhow & ~by_contents))
        return Changed(sum(len(s.at) for s in self.steps), numbered, len(self.other))

    def _close(self, calls: int, at: np.ndarray) -> int:
        """Sort these words by what they do; the number of those that count calls in a way that cannot be wound forward."""
        self.other, at = np.union1d(self.other, at[MOST:]), at[:MOST]
        if not len(at):
            return 0
        rows = np.unique(self._rows(at)).tolist()
        first, second = (self._looked(calls, (rows, self._within(rows, at)), singles=SINGLES, chains=2) for _ in range(2))
        counts = np.array([m.calls for m in first], np.int64)
        a, b = (np.stack([m.words for m in seen]) for seen in (first, second))
        left = (a == b).all(axis=0)
        for kind in (WHOLE, FLOAT):
            stepped = left & _stepped(a, counts, kind)
            self.steps.append(_steps(a, at, stepped, kind))
            left &= ~stepped
        cyclic = left & _cyclic(a, counts)
        self.cycles = at[cyclic], a[SINGLES][cyclic]
        left &= ~cyclic
        numbered = left & (np.diff(np.sort(a, axis=0), axis=0) != 0).all(axis=0) & self._telling(calls)
        known = cyclic | numbered
        for steps in self.steps:
            known |= np.isin(at, steps.at)
        self.other = np.union1d(self.other, at[~known])
        return int(numbered.sum())

    def _within(self, rows: Sequence[int], at: np.ndarray) -> np.ndarray:
        """Where words are when only these rows are read."""
        sizes = np.array([_words(self.rows[row]) for row in rows])
        begin = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        place = np.searchsorted(np.array(rows), self._rows(at))
        found: np.ndarray = begin[place] + at - self.starts[np.array(rows)[place]]
        return found

    def _telling(self, calls: int) -> bool:
        """Whether two looks had different contents: tensors that are taken whole may be the same draws in both, where there are few."""
        mixed = all(part.mode != tables.WHOLE for part in self.case.parts)
        return mixed or self.case.order.bank.draws ** min(calls, DIFFERENT) >= 1 << 16

    def _rows(self, at: np.ndarray) -> np.ndarray:
        """The row that each of these words is in."""
        found: np.ndarray = np.searchsorted(self.starts, at, side="right") - 1
        return found

    def _looked(self, calls: int, what: Places, *, singles: int = 0, chains: int = 0) -> list[Moment]:
        """These words at the start of a launch and after each graph of it: single calls, drawn, then chains of all."""
        rows, places = what
        self.case.build(calls)
        self.case.only(self.arm)
        few = self.rng.sample(range(calls), min(calls, singles, DIFFERENT))
        launches = [(1, self.arm.single(few[i % len(few)])) for i in range(singles)]
        launches += [(calls, self.arm.chains[calls][0])] * chains
        found: list[Moment] = []

        def words() -> np.ndarray:
            read = self._read(rows)
            return read if places is None else read[places]

        def body(arm: Arm, number: int) -> None:
            found.append(Moment(0, words()))
            for count, executable in launches:
                arm.launch(executable)
                found.append(Moment(found[-1].calls + count, words()))

        self.slots.run(self.arm, [Turn(self.rng.getrandbits(64))], calls, body)
        return found

    # ---------------------------------------------------------------------------------------- winding

    def bodies(self, calls: int) -> Iterator[tuple[int, Body]]:
        """(by how many calls, what launches all calls then); 0: what changes otherwise is overwritten. Nothing where nothing changes."""
        chain = self.arm.chains[calls][0]

        def body(wound: int, poison: int) -> Body:
            def queue(arm: Arm, number: int) -> None:
                self._wind(wound, poison)
                arm.launch(chain)

            return queue

        if any(len(s.at) for s in self.steps):
            yield from ((wound, body(wound, 0)) for wound in self._ahead(calls))
        if len(self.other):
            yield from ((0, body(0, poison)) for poison in POISONS)

    def _ahead(self, calls: int) -> list[int]:
        """By how many calls to wind: from one round of all cycles to as many as the first counter has before it comes round."""
        most = max(SURE, min((_left(s, SINGLES + 2 * calls) for s in self.steps), default=HALF))
        low, high = math.log(STEP), math.log(most)
        drawn = [math.exp(low + (high - low) * (i + self.rng.random()) / WOUND) for i in range(WOUND)]
        return [max(STEP, int(n) // STEP * STEP) for n in drawn]

    def _wind(self, wound: int, poison: int) -> None:
        """Put the blocks of a launch that is ready to go forward by so many calls; with a poison, only overwrite what changes otherwise."""
        where, values = self._poisoned(poison) if poison else self._forward(wound)
        order = np.argsort(where, kind="stable")
        where, values = where[order], values[order]
        for row in np.unique(self._rows(where)).tolist():
            mine = slice(*np.searchsorted(where, self.starts[row : row + 2]))
            words = self._read([row])
            words[where[mine] - self.starts[row]] = values[mine]
            self.device.write(self.rows[row].address, words.tobytes()[: self.rows[row].bytes])

    def _poisoned(self, poison: int) -> tuple[np.ndarray, np.ndarray]:
        return self.other, np.full(len(self.other), poison, np.uint32)

    def _forward(self, wound: int) -> tuple[np.ndarray, np.ndarray]:
        found = [(s.at, _moved(s, wound)) for s in self.steps] + [self.cycles]
        return np.concatenate([at for at, _ in found]), np.concatenate([values for _, values in found])

    def _read(self, rows: Sequence[int]) -> np.ndarray:
        """Waits for what is queued. A shorter last word is filled with zeros."""
        self.device.synchronise()
        pieces = [self.device.read(self.rows[row].address, self.rows[row].bytes) for row in rows]
        return np.frombuffer(b"".join(piece + bytes(-len(piece) % 4) for piece in pieces), np.uint32).copy()


def _words(row: tables.Block) -> int:
    return -(-int(row.bytes) // 4)


# --------------------------------------------------------------------------------------------- what words do


def _stepped(seen: np.ndarray, counts: np.ndarray, kind: np.dtype[Any]) -> np.ndarray:
    """Words that have moved by `kind`'s same step, other than 0, in every call. One row a moment."""
    with np.errstate(all="ignore"):
        if kind == WHOLE:
            step = seen[1] - seen[0]
            right = seen == seen[0] + counts[:, None].astype(np.uint32) * step
        else:
            numbers = seen.view(FLOAT)
            step = numbers[1] - numbers[0]
            right = (numbers == numbers[0] + counts[:, None].astype(FLOAT) * step) & np.isfinite(numbers)
    found: np.ndarray = right.all(axis=0) & (step != 0)
    return found


def _steps(seen: np.ndarray, at: np.ndarray, which: np.ndarray, kind: np.dtype[Any]) -> Steps:
    numbers = seen[:, which].copy().view(kind)
    return Steps(kind, at[which], numbers[SINGLES], numbers[1] - numbers[0])


def _cyclic(seen: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Words that come back after some CYCLES calls, once they have settled: flags that are set once, turns, places in a short ring."""
    found = np.zeros(seen.shape[1], bool)
    single = seen[SETTLING : SINGLES + 1]  # after so many calls, and each one more
    for cycle in CYCLES:
        back = (single[cycle:] == single[:-cycle]).all(axis=0)
        for count, late in zip(counts[SINGLES + 1 :], seen[SINGLES + 1 :], strict=True):
            back &= late == single[(int(count) - SETTLING) % cycle]
        found |= back
    return found


def _left(steps: Steps, used: int) -> int:
    """How many calls the first of these words has before it comes round, those that do within a launch aside."""
    if not len(steps.at):
        return HALF
    with np.errstate(all="ignore"):
        value, step = (steps.value.view(np.int32), steps.step.view(np.int32)) if steps.kind == WHOLE else (steps.value, steps.step)
        value, step = value.astype(np.float64), step.astype(np.float64)
        last = float(HALF) if steps.kind == WHOLE else np.abs(step) * (1 << 24)  # a float stands still there
        left = np.where(step > 0, (last - 1 - value) / step, (value + last) / -step) - used
    lasting = left[np.abs(step) * used < last]
    return int(np.clip(lasting.min(initial=HALF), 0, HALF))


def _moved(steps: Steps, wound: int) -> np.ndarray:
    """The words after so many calls more."""
    with np.errstate(all="ignore"):
        if steps.kind == WHOLE:
            return steps.value + np.uint32(wound & 0xFFFFFFFF) * steps.step
        moved: np.ndarray = (steps.value.astype(np.float64) + wound * steps.step.astype(np.float64)).astype(FLOAT)
        return moved.view(np.uint32)
