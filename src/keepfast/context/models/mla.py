"""Multi-head latent attention, one token decoded in the absorbed form: 576 numbers a token serve every head. NumPy, float64.

Small sizes work as well: R is the latent width (512), D the part of a head without position (128), P the part with (64).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Weights(NamedTuple):
    q_a: Array  # [hidden, q_lora]
    q_norm: Array  # [q_lora]
    q_b: Array  # [q_lora, H, D + P]
    kv_a: Array  # [hidden, R + P]
    kv_norm: Array  # [R]
    uk: Array  # [R, H, D]: latent to keys
    uv: Array  # [R, H, V]: latent to values
    o: Array  # [H, V, hidden]


def rms_norm(x: Array, weight: Array, eps: float = 1e-6) -> Array:
    normed: Array = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight
    return normed


def rope(x: Array, position: int, freq: Array) -> Array:
    """Turns the pairs (0, 1), (2, 3) ... of the last axis: pair i by position * freq[i]."""
    even, odd = x[..., 0::2], x[..., 1::2]
    cos, sin = np.cos(position * freq), np.sin(position * freq)
    return np.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1).reshape(x.shape)


def cache_row(x: Array, w: Weights, position: int, freq: Array) -> Array:
    """x [hidden] -> [R + P]: what is kept of a token. One position part for all heads."""
    latent, turned = np.split(x @ w.kv_a, [len(w.kv_norm)])
    return np.concatenate([rms_norm(latent, w.kv_norm), rope(turned, position, freq)])


def query(x: Array, w: Weights, position: int, freq: Array) -> Array:
    """x [hidden] -> [H, R + P]: the part without position goes through the key projection instead of the keys."""
    q = np.einsum("r,rhd->hd", rms_norm(x @ w.q_a, w.q_norm), w.q_b)
    plain, turned = np.split(q, [w.uk.shape[2]], axis=1)
    return np.concatenate([np.einsum("hd,rhd->hr", plain, w.uk), rope(turned, position, freq)], axis=1)


def decode(x: Array, cache: Array, w: Weights, position: int, freq: Array) -> Array:
    """x [hidden], cache [S, R + P] with the token's own row -> [hidden]. The values are the first R numbers of the keys."""
    scores = query(x, w, position, freq) @ cache.T / np.sqrt(w.q_b.shape[2])  # D + P, not R + P
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    latent = p @ cache[:, : len(w.kv_norm)] / p.sum(axis=1, keepdims=True)
    out: Array = np.einsum("hr,rhv,hvm->m", latent, w.uv, w.o)
    return out
