"""What each slot replaces, in plain torch: by this a model is probed before a kernel goes in, and kernels of tests are held against it.

Arguments have the slot's names and shapes (engine/slots.py). Must not know models.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F


def _attended(states: tuple[Any, Any, Any], allowed: Any, scale: float, sinks: Any) -> Any:
    """q [batch, heads, tokens, d], k and v [batch, kv heads, s, d], `allowed` broadcast to [batch, heads, tokens, s]."""
    q, k, v = states
    group = q.shape[1] // k.shape[1]
    keys, values = (x.float().repeat_interleave(group, dim=1) for x in (k, v))
    scores = (q.float() @ keys.transpose(2, 3) * scale).masked_fill(~allowed, -math.inf)
    if sinks is not None:
        extra = sinks.float().view(1, -1, 1, 1).expand(q.shape[0], -1, q.shape[2], 1)
        return (torch.softmax(torch.cat([scores, extra], dim=-1), dim=-1)[..., :-1] @ values).to(q.dtype)
    return (torch.softmax(scores, dim=-1) @ values).to(q.dtype)


def attention_decode(q: Any, k: Any, v: Any, lengths: Any, scale: float, sinks: Any = None) -> Any:
    allowed = torch.arange(k.shape[2], device=q.device)[None, None, None] < lengths[:, None, None, None]
    return _attended((q[:, :, None], k, v), allowed, scale, sinks)[:, :, 0]


def attention_prefill(q: Any, k: Any, v: Any, scale: float, sinks: Any = None, window: int = 0) -> Any:
    at = torch.arange(q.shape[1], device=q.device)
    back = at[:, None] - at[None]
    allowed = (back >= 0) & (back < window if window else True)
    return _attended((q.transpose(1, 2), k, v), allowed[None, None], scale, sinks).transpose(1, 2).contiguous()


def rms_norm(input: Any, weight: Any, epsilon: float) -> Any:
    wide = input.float()
    normed = wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + epsilon)
    return weight * normed.to(input.dtype)


def add_rms_norm(input: Any, residual: Any, weight: Any, epsilon: float) -> None:
    residual.add_(input)
    input.copy_(rms_norm(residual, weight, epsilon))


def rotary_cache(q: Any, k: Any, v: Any, cos: Any, sin: Any, k_cache: Any, v_cache: Any, positions: Any) -> None:
    def rotated(x: Any) -> Any:
        low, high = x.chunk(2, dim=-1)
        return x * cos[:, None] + torch.cat((-high, low), dim=-1) * sin[:, None]

    q.copy_(rotated(q))
    row = torch.arange(q.shape[0], device=q.device)
    k_cache[row, :, positions.long()] = rotated(k)
    v_cache[row, :, positions.long()] = v


def mlp_activation(gate: Any, up: Any) -> Any:
    return F.silu(gate) * up


def linear(input: Any, weight: Any, weight_scale: Any = None, bias: Any = None) -> Any:
    if weight_scale is not None:
        weight = (weight.float() * weight_scale[:, None]).to(input.dtype)
    return F.linear(input, weight, bias)


def moe(input: Any, router_indices: Any, routing_weights: Any, gate_up: Any, down: Any) -> Any:
    """Every expert for every token, most of it for nothing: for small shapes."""
    gate, up = torch.einsum("th,eoh->teo", input, gate_up).chunk(2, dim=-1)
    each = torch.einsum("tei,ehi->teh", F.silu(gate) * up, down)
    taken = each.gather(1, router_indices[..., None].expand(-1, -1, each.shape[2]))
    return (taken * routing_weights[..., None].to(taken.dtype)).sum(dim=1).to(input.dtype)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    f.__name__: f for f in (attention_decode, attention_prefill, rms_norm, add_rms_norm, rotary_cache, mlp_activation, linear, moe)
}
