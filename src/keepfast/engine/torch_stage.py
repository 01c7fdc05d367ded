"""One cell made ready: the static inputs of a step, where in the text it is, and the step itself.

Everything that a captured step reads lies at a fixed address; it is changed between steps, never inside one. Must not know arms or clocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from keepfast.engine.base import Cell
from keepfast.engine.torch_model import Cache, prompt

Forward = Callable[..., Any]
"""The model, or the model compiled."""


class Moment:
    """What filled slots read besides what the model hands them: the phase, and where each sequence is."""

    def __init__(self) -> None:
        self.phase = ""
        self.tokens = 0  # in the cache, before the step
        self.lengths: Any = None  # [batch], int32: the new token included
        self.windowed: Any = None  # the same, at most the sliding window
        self.positions: Any = None  # [batch], int32

    def on(self, phase: str) -> bool:
        """Whether a fill for `phase` is used now."""
        return phase in ("both", self.phase)

    def enter(self, phase: str, batch: int, device: Any) -> None:
        self.phase, self.tokens = phase, 0
        self.lengths, self.windowed, self.positions = (torch.zeros(batch, dtype=torch.int32, device=device) for _ in range(3))

    def place(self, tokens: int, window: int) -> None:
        self.tokens = tokens
        self.lengths.fill_(tokens + 1)
        self.windowed.fill_(min(tokens + 1, window) if window else tokens + 1)
        self.positions.fill_(tokens)


class Decode:
    """Steps of one new token for each sequence, over a cache that is set back between them."""

    def __init__(self, cell: Cell, cache: Cache, moment: Moment, window: int, device: Any) -> None:
        self.cell, self.cache, self.moment, self.window = cell, cache, moment, window
        self.device = device
        self.enter()
        self.ids = torch.zeros(cell.batch, 1, dtype=torch.long, device=device)
        self.at = torch.zeros(cell.batch, 1, dtype=torch.long, device=device)

    def enter(self) -> None:
        """Have filled slots read of this stage, from new addresses."""
        self.moment.enter("decode", self.cell.batch, self.device)

    def place(self, tokens: int) -> None:
        """The next step comes after so many tokens."""
        self.cache.place(tokens)
        self.at.fill_(tokens)
        self.moment.place(tokens, self.window)

    def at_context(self) -> None:
        self.place(self.cell.context)

    def step(self, forward: Forward) -> Any:
        """Logits of the new token, [batch, vocabulary]."""
        made = forward(input_ids=self.ids, position_ids=self.at, past_key_values=self.cache.held, use_cache=True, logits_to_keep=1)
        return made.logits[:, -1]

    def walk(self, run: Callable[[], Any], text: Any) -> Iterator[Any]:
        """Logits after each token of `text` [batch, tokens], the last of which comes at the cell's context."""
        first = self.cell.context - text.shape[1] + 1
        for i in range(text.shape[1]):
            self.place(first + i)
            self.ids.copy_(text[:, i : i + 1])
            yield run()

    def follow(self, run: Callable[[], Any], start: Any, tokens: int) -> Any:
        """Greedily decoded tokens [batch, tokens], after `start` [batch, 1]."""
        found = [start]
        for i in range(tokens):
            self.place(self.cell.context - tokens + 1 + i)
            self.ids.copy_(found[-1])
            found.append(run().argmax(-1, keepdim=True))
        return torch.cat(found[1:], dim=1)


class Prefill:
    """Prompts of the same random text, each into a new cache."""

    def __init__(self, cell: Cell, moment: Moment, model: Any, text: Any) -> None:
        self.cell, self.moment, self.model, self.text = cell, moment, model, text
        moment.enter("prefill", cell.batch, text.device)

    def step(self, forward: Forward, keep: int = 1) -> Any:
        """Logits of the last `keep` positions, [batch, keep, vocabulary]."""
        return prompt(forward, Cache(self.model, self.cell), self.text, keep)
