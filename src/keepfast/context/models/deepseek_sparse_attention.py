"""DeepSeek sparse attention (V3.2): an indexer scores every token, absorbed MLA runs on the best of them. NumPy, float64.

Sizes of V3.2: 64 indexer heads of 128 numbers, one key for all of them, 64 of the 128 with position, 2048 tokens kept.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def rope(x: Array, position: int, freq: Array) -> Array:
    """Turns the FIRST 2 * len(freq) numbers; number i goes with number i + len(freq), not with its neighbour."""
    n = len(freq)
    low, high, rest = x[..., :n], x[..., n : 2 * n], x[..., 2 * n :]
    cos, sin = np.cos(position * freq), np.sin(position * freq)
    return np.concatenate([low * cos - high * sin, high * cos + low * sin, rest], axis=-1)


def layer_norm(x: Array, weight: Array, bias: Array, eps: float = 1e-6) -> Array:
    centred = x - x.mean(axis=-1, keepdims=True)
    normed: Array = centred / np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + eps) * weight + bias
    return normed


def index_query(c_q: Array, w_q: Array, position: int, freq: Array) -> Array:
    """c_q [q_lora] (the normed latent query of MLA), w_q [q_lora, heads, 128] -> [heads, 128]."""
    return rope(np.einsum("r,rhd->hd", c_q, w_q), position, freq)


def index_key(x: Array, w_k: Array, norm: tuple[Array, Array], position: int, freq: Array) -> Array:
    """x [hidden], w_k [hidden, 128] -> [128], the same for all indexer heads. `norm`: weight and bias."""
    return rope(layer_norm(x @ w_k, *norm), position, freq)


def index_scores(q: Array, keys: Array, x: Array, w_gate: Array) -> Array:
    """q [heads, 128], keys [S, 128], x [hidden], w_gate [hidden, heads] -> [S]. Gates may be negative; nothing is a softmax."""
    gate = x @ w_gate * len(q) ** -0.5
    scores: Array = gate @ np.maximum(q @ keys.T * q.shape[1] ** -0.5, 0.0)
    return scores


def select(scores: Array, position: int, top: int = 2048) -> NDArray[np.intp]:
    """Places of the `top` best of tokens 0 ... position; all of them when they are fewer."""
    return np.argsort(-scores[: position + 1], kind="stable")[:top]


def attend(q: Array, cache: Array, chosen: NDArray[np.intp], latent: int, scale: float) -> Array:
    """q [H, 576] absorbed, cache [S, 576] -> [H, latent], still to go through the value projection."""
    rows = cache[chosen]
    scores = q @ rows.T * scale
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    out: Array = p @ rows[:, :latent] / p.sum(axis=1, keepdims=True)
    return out
