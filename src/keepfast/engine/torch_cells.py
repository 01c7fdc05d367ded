"""A cell in which every arm can be captured, held against stock, profiled and timed: decode and prefill.

Owns the order in which a cache is filled, walked along and set back. Must not know how kernels get into a model, nor what is made of laps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

import torch

from keepfast.engine import torch_model as models
from keepfast.engine.base import STOCK, Cell, Likeness, Planted
from keepfast.engine.torch_graph import Backend, Run
from keepfast.engine.torch_likeness import Alike, agreement, compared
from keepfast.engine.torch_planted import FAULTS, planted
from keepfast.engine.torch_seat import Broke, Seat
from keepfast.engine.torch_slots import Wardrobe
from keepfast.engine.torch_stage import Decode, Forward, Prefill
from keepfast.engine.torch_trace import Ran
from keepfast.engine.transformers import Plan
from keepfast.errors import MachineError, TaskError

MODES = {"default": "default", "max-autotune": "max-autotune-no-cudagraphs"}  # the graph is ours
AGAIN, FLOAT32 = "stock again", "stock in float32"
EXACT = "sdpa_gqa_exact"
ONLY = {"attention_decode": "decode", "rotary_cache": "decode", "attention_prefill": "prefill"}  # slots that one phase has

T = TypeVar("T")


class Room(Protocol):
    """`runs`: the arms that were captured."""

    cell: Cell
    plan: Plan
    runs: dict[str, Run]

    def tried(self, arm: str, work: Callable[[], T]) -> T | None: ...

    def peak(self, arm: str) -> int | None: ...

    def capture(self, arm: str) -> None: ...

    def likeness(self) -> Iterator[Likeness]: ...

    def sensitivity(self) -> Iterator[Planted]: ...

    def profile(self, arm: str) -> Ran: ...

    def lap(self, arm: str) -> list[float]: ...


class _Common:
    """What both phases share: arms are worn before they run."""

    def __init__(self, cell: Cell, plan: Plan, wardrobe: Wardrobe, run_on: Backend) -> None:
        self.cell, self.plan, self.wardrobe, self.run_on = cell, plan, wardrobe, run_on
        self.model = wardrobe.model
        self.runs: dict[str, Run] = {}
        self.stock: list[Any] = []  # its logits at each place, once likeness was taken

    def forward(self, arm: str) -> Forward:
        """The model as this arm calls it."""
        mode = self.wardrobe.dresses[arm].arm.compile or self.plan.compile
        if mode is None:
            return self.model  # type: ignore[no-any-return]
        return torch.compile(self.model, mode=MODES[mode], dynamic=False)  # type: ignore[no-any-return]

    def says(self, arm: str, against: str, alike: Alike, greedy: float) -> Likeness:
        return Likeness(self.cell.name, arm, against, alike.kl_mean, alike.kl_worst, alike.top1, alike.tokens, greedy)

    def worn(self, arm: str, run: Run) -> Run:
        """The run, in this arm's dress. A captured graph does not need it; a step that is called does."""

        def dressed() -> Any:
            self.wardrobe.wear(arm)
            return run()

        return dressed

    def widely(self) -> bool:
        """Whether the null has a run in a higher precision. Flash attention has none."""
        return self.plan.float32 and self.model.dtype != torch.float32 and not self.plan.attention.startswith("flash")

    def tried(self, arm: str, work: Callable[[], T]) -> T | None:
        """None when the arm ended with it, and then it is out of this cell. Broke, or MachineError, when the card ended with it too."""
        with self.wardrobe.or_dropped(arm, f"{self.cell.name}: "):
            return work()
        self.runs.pop(arm, None)
        if not self.run_on.alive():
            what = f"{self.cell.name}: the card computes no more after arm {arm}"
            kind = Broke if arm in self.wardrobe.crashed else MachineError
            raise kind(what, where=f"arm {arm}", next_step="compute-sanitizer says where")
        return None

    def others(self) -> list[str]:
        return [arm for arm in self.runs if arm != STOCK]

    def sensitivity(self) -> Iterator[Planted]:
        """How far a fault in each slot that is used here would move the logits. Arms are called for it: a graph has no fault in it."""
        for arm, seat, fault in list(self._faults()):
            with planted(seat, fault):
                alike = self.tried(arm, lambda arm=arm: compared(self.stock, self.called(arm)))  # type: ignore[misc]
            if alike is not None:
                yield Planted(seat.fill.slot, seat.fill.task, fault, self.says(arm, STOCK, alike, 0.0))

    def called(self, arm: str) -> list[Any]:
        """Logits of the arm at each place, not replayed."""
        raise NotImplementedError

    def _faults(self) -> Iterator[tuple[str, Seat, str]]:
        """Every slot once, in the first arm that has it: arm, seat and fault."""
        phase, seats = self.cell.phase, [(arm, seat) for arm in self.others() for seat in self.wardrobe.dresses[arm].seats]
        used = [(arm, s) for arm, s in seats if s.fill.phase in ("both", phase) and ONLY.get(s.fill.slot, phase) == phase]
        once = {(seat.fill.slot, seat.fill.task): (arm, seat) for arm, seat in reversed(used)}
        return ((arm, seat, fault) for arm, seat in once.values() for fault in FAULTS)


class DecodeRoom(_Common):
    """The null in float32 is run before anything is captured, because the weights move for it."""

    def __init__(self, cell: Cell, plan: Plan, wardrobe: Wardrobe, run_on: Backend) -> None:
        super().__init__(cell, plan, wardrobe, run_on)
        wardrobe.wear(STOCK)
        self.tokens = min(plan.tokens, cell.context // 2)
        window = models.sliding(self.model)
        if window and cell.context - self.tokens < window <= cell.context + 1:
            what = f"{cell.name}: layers with a window of {window} tokens are full within the text that is walked along"
            raise TaskError(what, where="cells", next_step=f"A context below {window} or above {window + self.tokens}")
        wardrobe.moment.phase = "filling"
        self.start = cell.context - self.tokens + 1
        cache = models.filled(self.model, cell, plan, cell.context)
        self.held = cache.prefix(self.start)
        self.stage = Decode(cell, cache, wardrobe.moment, window, self.model.device)
        draw = torch.Generator(device=self.model.device).manual_seed(plan.seed + 2)
        self.text = torch.randint(self.model.config.vocab_size, (cell.batch, self.tokens), generator=draw, device=self.model.device)
        self.eagerly = bool(window)  # masks of a window hold numbers of the host: a graph of them is right at one place only
        self.wide = self._in_float32() if self.widely() else []

    def peak(self, arm: str) -> int | None:
        run = self.worn(arm, lambda: self.stage.step(self.model))
        self.stage.at_context()
        run()
        self.stage.at_context()
        found = self.run_on.peak(run)
        self._intact(arm)
        return found

    def capture(self, arm: str) -> None:
        forward = self.forward(arm)
        run = self.worn(arm, lambda: self.stage.step(forward))
        captured = self.worn(arm, self.run_on.captured(run, self.stage.at_context))
        self._intact(arm)
        self.runs[arm] = captured

    def profile(self, arm: str) -> Ran:
        self.wardrobe.wear(arm)
        return self.run_on.profile(self.runs[arm], self.stage.at_context, self.wardrobe.tally)

    def lap(self, arm: str) -> list[float]:
        self.wardrobe.wear(arm)
        return self.run_on.lap(self.runs[arm], self.stage.at_context, self.plan.steps)

    def likeness(self) -> Iterator[Likeness]:
        stock = self.stock = self._walked(self._walker(STOCK))
        greedy = self._greedy(self._walker(STOCK))
        again = self.worn(STOCK, lambda: self.stage.step(self.model))  # called, not replayed
        yield self.says(STOCK, AGAIN, compared(stock, self._walked(again)), agreement(greedy, self._greedy(again)))
        if self.wide:
            yield self.says(STOCK, FLOAT32, compared(stock, self.wide), 1.0)
        for arm in self.others():
            alike = self.tried(arm, lambda arm=arm: self._against(arm, stock, greedy))  # type: ignore[misc]
            yield from (alike,) if alike is not None else ()

    def called(self, arm: str) -> list[Any]:
        return self._walked(self.worn(arm, lambda: self.stage.step(self.model)))

    def _against(self, arm: str, stock: list[Any], greedy: Any) -> Likeness:
        if self._attention(arm) == EXACT:  # right at the cell's context only: stock walks there
            *_, last = self.stage.walk(self._walker(STOCK), self.text)
            del last
            self.stage.at_context()
            return self.says(arm, STOCK, compared(stock[-1:], [self.runs[arm]()]), 1.0)
        alike = compared(stock, self._walked(self._walker(arm)))
        same = agreement(greedy, self._greedy(self._walker(arm)))
        self._intact(arm)
        return self.says(arm, STOCK, alike, same)

    def _intact(self, arm: str) -> None:
        """Broke when an arm has changed what all arms read."""
        if self.stage.cache.prefix(self.start) != self.held:
            slots = ", ".join(seat.where for seat in self.wardrobe.dresses[arm].seats)
            what = f"arm {arm} wrote into the cache before the place of the new token"
            raise (Broke if slots else TaskError)(what, where=slots or f"arm {arm}", next_step="A kernel may write at `positions` only")

    def _attention(self, arm: str) -> str:
        return self.wardrobe.dresses[arm].arm.attention or self.plan.attention

    def _walker(self, arm: str) -> Run:
        return self.worn(arm, lambda: self.stage.step(self.model)) if self.eagerly else self.runs[arm]

    def _walked(self, run: Run) -> list[Any]:
        return [logits.clone() for logits in self.stage.walk(run, self.text)]

    def _greedy(self, run: Run) -> Any:
        return self.stage.follow(run, self.text[:, :1], self.tokens)

    def _in_float32(self) -> list[Any]:
        """Logits of stock with everything in float32, over the same cache."""
        wide = self.stage.cache.widened(self.model, self.cell)
        wide_stage = Decode(self.cell, wide, self.wardrobe.moment, self.stage.window, self.model.device)
        with models.in_float32(self.model):
            found = [x.clone() for x in wide_stage.walk(lambda: wide_stage.step(self.model), self.text)]
        self.stage.enter()
        return found


class PrefillRoom(_Common):
    """A prompt is not captured: engines run it once. Every call has a new cache, which it allocates."""

    def __init__(self, cell: Cell, plan: Plan, wardrobe: Wardrobe, run_on: Backend) -> None:
        super().__init__(cell, plan, wardrobe, run_on)
        wardrobe.wear(STOCK)
        draw = torch.Generator(device=self.model.device).manual_seed(plan.seed + 1)
        text = torch.randint(self.model.config.vocab_size, (cell.batch, cell.context), generator=draw, device=self.model.device)
        self.stage = Prefill(cell, wardrobe.moment, self.model, text)
        self.keep = min(plan.tokens, cell.context)
        self.wide: list[Any] = []
        if self.widely():
            with models.in_float32(self.model):
                self.wide = self._logits(self.model)

    def peak(self, arm: str) -> int | None:
        run = self.worn(arm, lambda: self.stage.step(self.model))
        run()
        return self.run_on.peak(run)

    def capture(self, arm: str) -> None:
        forward = self.forward(arm)
        run = self.worn(arm, lambda: self.stage.step(forward))
        run()
        self.runs[arm] = run

    def profile(self, arm: str) -> Ran:
        return self.run_on.profile(self.runs[arm], _nothing, self.wardrobe.tally)

    def lap(self, arm: str) -> list[float]:
        self.wardrobe.wear(arm)
        return self.run_on.lap(self.runs[arm], _nothing, min(self.plan.steps, PROMPTS))

    def likeness(self) -> Iterator[Likeness]:
        stock = self.stock = self.called(STOCK)
        again = self.called(STOCK)
        yield self.says(STOCK, AGAIN, compared(stock, again), _last_same(stock, again))
        if self.wide:
            yield self.says(STOCK, FLOAT32, compared(stock, self.wide), _last_same(stock, self.wide))
        for arm in self.others():
            mine = self.tried(arm, lambda arm=arm: self.called(arm))  # type: ignore[misc]
            if mine is not None:
                yield self.says(arm, STOCK, compared(stock, mine), _last_same(stock, mine))

    def called(self, arm: str) -> list[Any]:
        self.wardrobe.wear(arm)
        return self._logits(self.model)

    def _logits(self, forward: Forward) -> list[Any]:
        logits = self.stage.step(forward, self.keep)
        return [logits[:, i].clone() for i in range(self.keep)]


PROMPTS = 3  # in a row at most: a long prompt takes as long as a thousand steps


def _last_same(stock: list[Any], other: list[Any]) -> float:
    """Share of sequences whose next token is the same."""
    return float((stock[-1].argmax(-1) == other[-1].argmax(-1)).double().mean())


def _nothing() -> None:
    """There is nothing to set back."""


ROOMS: dict[str, Callable[[Cell, Plan, Wardrobe, Backend], Room]] = {"decode": DecodeRoom, "prefill": PrefillRoom}
