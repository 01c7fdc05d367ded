"""How alike the logits of two arms are. Must not know models, arms or clocks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from msgspec import Struct


class Alike(Struct, frozen=True):
    """As in `base.Likeness`."""

    kl_mean: float
    kl_worst: float
    top1: float
    tokens: int


def compared(stock: Sequence[Any], other: Iterable[Any]) -> Alike:
    """Position by position, [batch, vocabulary] each: KL(stock || other) in nats, and whether the best token is the same.

    A logit that is no number makes KL infinite: nothing is like it.
    """
    divergences, same = [], []
    for theirs, mine in zip(stock, other, strict=True):
        divergences.append(divergence(theirs, mine))
        same.append(theirs.argmax(-1) == mine.argmax(-1))
    every, agreed = torch.cat(divergences), torch.cat(same)
    return Alike(float(every.mean()), float(every.max()), float(agreed.float().mean()), every.numel())


def divergence(stock: Any, other: Any) -> Any:
    """KL in nats of each row, at least 0, summed in float64."""
    p, q = (torch.log_softmax(x.double(), dim=-1) for x in (stock, other))
    found = (p.exp() * (p - q)).sum(dim=-1).clamp(min=0.0)
    return torch.where(torch.isfinite(found), found, torch.full_like(found, torch.inf))


def agreement(stock: Any, other: Any) -> float:
    """Share of tokens [batch, tokens] that are the same up to the first that differs, over all sequences."""
    same = (stock == other).long().cumprod(dim=1)
    return float(same.double().mean())
