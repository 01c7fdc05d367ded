"""DeepSeek V4 attention for one query: compressors (CSA, HCA), indexer, one softmax with a sink, turning back. NumPy, float64."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Places = NDArray[np.intp]


def rms_norm(x: Array, weight: Array | float = 1.0, eps: float = 1e-6) -> Array:
    normed: Array = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight
    return normed


def rope(x: Array, position: int | Places, freq: Array) -> Array:
    """Turns neighbouring pairs of the LAST 2 * len(freq) numbers; a negative position turns back."""
    n = 2 * len(freq)
    turned = (x[..., -n::2] + 1j * x[..., 1 - n :: 2]) * np.exp(1j * np.multiply.outer(position, freq))
    return np.concatenate([x[..., :-n], np.stack([turned.real, turned.imag], axis=-1).reshape(*x.shape[:-1], n)], axis=-1)


def hca(c: Array, z: Array, bias: Array, weight: Array, freq: Array) -> Array:
    """c, z [T, d], bias [128, d] -> entries [T // 128, d]. Tokens of an unfinished window wait."""
    m = len(bias)
    c, z = (x[: len(x) // m * m].reshape(-1, m, x.shape[1]) for x in (c, z))
    return _mixed(c, z + bias, weight, m, freq)


def csa(c: Array, z: Array, bias: Array, weight: Array, freq: Array) -> Array:
    """c, z [T, 2 d], bias [4, 2 d] -> entries [T // 4, d]: first halves of the window before, second halves of its own."""
    m, d = len(bias), c.shape[1] // 2
    c, z = (x[: len(x) // m * m].reshape(-1, m, 2 * d) for x in (c, z))
    z = z + bias
    before_c = np.concatenate([np.zeros((1, m, d)), c[:-1, :, :d]])[: len(c)]
    before_z = np.concatenate([np.full((1, m, d), -np.inf), z[:-1, :, :d]])[: len(z)]
    return _mixed(np.concatenate([before_c, c[..., d:]], axis=1), np.concatenate([before_z, z[..., d:]], axis=1), weight, m, freq)


def _mixed(c: Array, z: Array, weight: Array, m: int, freq: Array) -> Array:
    """[n, tokens, d] -> [n, d]: a softmax over the tokens for every channel by itself, norm, RoPE at the window's first token."""
    share = np.exp(z - z.max(axis=1, keepdims=True))
    return rope(rms_norm((share * c).sum(axis=1) / share.sum(axis=1), weight), np.arange(len(c)) * m, freq)


def select(q: Array, keys: Array, gate: Array, visible: int, top: int) -> Places:
    """q [heads, 128], keys [n, 128] (their own csa), gate [heads] = x Ww -> places of the best of the first `visible` entries."""
    scores = gate * len(q) ** -0.5 @ np.maximum(q @ keys.T * q.shape[1] ** -0.5, 0.0)
    return np.argsort(-scores[:visible], kind="stable")[:top]


def attend(q: Array, recent: Array, entries: Array, sink: Array, turn: tuple[int, Array]) -> Array:
    """q [H, d] normed and turned, the last 128 raw rows, visible entries, sink [H], (t, freq) -> [H, d]. Keys are values."""
    keys = np.concatenate([recent, entries])
    scores = q @ keys.T / np.sqrt(q.shape[1])
    top = np.maximum(scores.max(axis=1), sink)[:, None]
    p = np.exp(scores - top)
    return rope(p @ keys / (p.sum(axis=1, keepdims=True) + np.exp(sink[:, None] - top)), -turn[0], turn[1])
