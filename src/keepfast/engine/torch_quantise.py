"""Weights quantised by row, for a `linear` slot whose signature takes `weight_scale`. Must not know models."""

from __future__ import annotations

from typing import Any

import torch

from keepfast.errors import TaskError

KINDS = ("float8_e4m3fn", "float8_e5m2", "int8")


def quantised(weight: Any, kind: str, where: str) -> tuple[Any, Any]:
    """(codes [n, k], scale [n] in float32): codes * scale[:, None] is the weight. Rows of zeros have scale 1."""
    if kind not in KINDS:
        raise TaskError(
            f"a quantised weight cannot be {kind}", where=where, next_step=f"[arguments] weight = {{ dtype = ... }}: {', '.join(KINDS)}"
        )
    dtype = getattr(torch, kind)
    most = 127.0 if kind == "int8" else torch.finfo(dtype).max
    scale = weight.detach().float().abs().amax(dim=1) / most
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    codes = weight.detach().float() / scale[:, None]
    return (codes.round() if kind == "int8" else codes).to(dtype), scale
