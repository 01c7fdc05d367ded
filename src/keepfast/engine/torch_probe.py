"""Whether a model computes what its slots replace: each slot filled with plain torch must leave the logits where they were.

Catches norms that multiply by 1 + weight, other rotary embeddings, other gates, before a kernel is blamed. Must not know clocks.
"""

from __future__ import annotations

from typing import Any

import torch

from keepfast.engine.base import STOCK, Cell
from keepfast.engine.torch_model import Cache, prompt, sliding
from keepfast.engine.torch_reference import FUNCTIONS
from keepfast.engine.torch_seat import Seat, standing_in
from keepfast.engine.torch_slots import Dress, Wardrobe
from keepfast.engine.torch_stage import Decode, Prefill
from keepfast.errors import TaskError

CONTEXT, BATCH = 8, 2
MOST = {torch.float32: 1e-3}  # of the logits' own size
MOST_HALF = 0.15  # rounding alone is about 0.03 in a deep model; another norm or rotary embedding is near 1


def probe(model: Any, wardrobe: Wardrobe) -> None:
    """TaskError names the slot that does not fit the model."""
    text = torch.arange(BATCH * CONTEXT, device=model.device).view(BATCH, CONTEXT) % model.config.vocab_size
    expected = {phase: _logits(model, wardrobe, STOCK, phase, text) for phase in ("decode", "prefill")}
    for name, dress in wardrobe.dresses.items():
        for seat in dress.seats:
            if not seat.takes("weight_scale"):  # quantised weights are not the model's
                _probe(model, wardrobe, (name, dress, seat), expected, text)


def _probe(model: Any, wardrobe: Wardrobe, worn: tuple[str, Dress, Seat], expected: dict[str, Any], text: Any) -> None:
    name, dress, seat = worn
    phases = [p for p in expected if seat.fill.phase in ("both", p)]
    with standing_in(dress.seats, seat, FUNCTIONS[seat.fill.slot]):
        for phase in phases:
            off = _off(expected[phase], _logits(model, wardrobe, name, phase, text))
            if not off <= MOST.get(model.dtype, MOST_HALF):
                shown = f"with plain torch in it, logits of a {phase} differ by {off:.2g} of their size"
                what = f"{type(model).__name__} does not compute what the slot replaces: {shown}"
                raise TaskError(what, where=seat.where, next_step="Leave this slot out for this model")


def _logits(model: Any, wardrobe: Wardrobe, arm: str, phase: str, text: Any) -> Any:
    """Of a prompt, or of the last token of the text after the others."""
    cell, moment = Cell(phase, CONTEXT, BATCH), wardrobe.moment
    if phase == "prefill":
        wardrobe.wear(arm)
        return Prefill(cell, moment, model, text).step(model)[:, -1].float()
    wardrobe.wear(STOCK)
    moment.phase = "filling"
    cache = Cache(model, cell)
    prompt(model, cache, text[:, :-1])
    cache.keep()
    stage = Decode(cell, cache, moment, sliding(model), model.device)
    stage.place(CONTEXT - 1)
    stage.ids.copy_(text[:, -1:])
    wardrobe.wear(arm)
    return stage.step(model).float()


def _off(expected: Any, found: Any) -> float:
    """Root mean square of the difference over that of what was expected."""
    return float((found - expected).square().mean().sqrt() / expected.square().mean().sqrt())
