"""Each reference against a slow formula written another way: element by element, one token at a time."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from tests.context.kit import load

CLOSE = {"rtol": 1e-10, "atol": 1e-12}


def draw(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def softmax(values: list[float]) -> list[float]:
    top = max(values)
    weights = [math.exp(v - top) for v in values]
    return [w / sum(weights) for w in weights]


def norm(x: np.ndarray, eps: float = 1e-6) -> np.ndarray:
    return x / math.sqrt(sum(float(v) ** 2 for v in x) / len(x) + eps)


def turned(x: np.ndarray, pairs: list[tuple[int, int]], position: int, freq: np.ndarray) -> np.ndarray:
    """One vector; pair i, given by its two places, turned by position * freq[i] as a matrix does it."""
    out = x.copy()
    for (a, b), f in zip(pairs, freq, strict=True):
        cos, sin = math.cos(position * f), math.sin(position * f)
        out[a], out[b] = cos * x[a] - sin * x[b], sin * x[a] + cos * x[b]
    return out


def frequencies(n: int) -> np.ndarray:
    return np.array([10000.0 ** (-i / n) for i in range(n)])


# ---- MLA: the absorbed form against keys and values that are made for every head and token


def test_mla_is_ordinary_attention_over_decompressed_keys_and_values() -> None:
    mla = load("mla")
    hidden, lora, r, heads, d, p, v, tokens = 24, 12, 16, 3, 8, 4, 6, 9
    w = mla.Weights(
        q_a=draw(1, hidden, lora), q_norm=draw(2, lora), q_b=draw(3, lora, heads, d + p), kv_a=draw(4, hidden, r + p),
        kv_norm=draw(5, r), uk=draw(6, r, heads, d), uv=draw(7, r, heads, v), o=draw(8, heads, v, hidden),
    )  # fmt: skip
    freq, xs = frequencies(p // 2), draw(9, tokens, hidden)
    cache = np.stack([mla.cache_row(x, w, t, freq) for t, x in enumerate(xs)])
    got = mla.decode(xs[-1], cache, w, tokens - 1, freq)

    pairs = [(i, i + 1) for i in range(0, p, 2)]
    expected = np.zeros(hidden)
    for h in range(heads):
        q = norm(xs[-1] @ w.q_a) * w.q_norm @ w.q_b[:, h]
        q = np.concatenate([q[:d], turned(q[d:], pairs, tokens - 1, freq)])
        scores, values = [], []
        for t, x in enumerate(xs):
            c, k_r = (x @ w.kv_a)[:r], (x @ w.kv_a)[r:]
            c = norm(c) * w.kv_norm
            key = np.concatenate([c @ w.uk[:, h], turned(k_r, pairs, t, freq)])
            scores.append(float(q @ key) / math.sqrt(d + p))
            values.append(c @ w.uv[:, h])
        mixed = sum(s * value for s, value in zip(softmax(scores), values, strict=True))
        expected += mixed @ w.o[h]
    np.testing.assert_allclose(got, expected, **CLOSE)


# ---- DeepSeek sparse attention


def test_the_indexer_scores_and_selects() -> None:
    dsa = load("deepseek_sparse_attention")
    hidden, lora, heads, dim, n, tokens, top = 20, 10, 4, 12, 3, 15, 5
    xs, c_q = draw(1, tokens, hidden), draw(2, lora)
    w_q, w_k, w_gate = draw(3, lora, heads, dim), draw(4, hidden, dim), draw(5, hidden, heads)
    weight, bias, freq, t = draw(6, dim), draw(7, dim), frequencies(n), tokens - 3
    keys = np.stack([dsa.index_key(x, w_k, (weight, bias), s, freq) for s, x in enumerate(xs)])
    q = dsa.index_query(c_q, w_q, t, freq)
    got = dsa.index_scores(q, keys, xs[t], w_gate)

    pairs = [(i, i + n) for i in range(n)]
    expected = []
    for s, x in enumerate(xs):
        k = x @ w_k
        k = (k - k.mean()) / math.sqrt(k.var() + 1e-6) * weight + bias
        k = turned(k, pairs, s, freq)
        total = 0.0
        for h in range(heads):
            gate = float(xs[t] @ w_gate[:, h]) / math.sqrt(heads)
            total += gate * max(0.0, float(turned(c_q @ w_q[:, h], pairs, t, freq) @ k) / math.sqrt(dim))
        expected.append(total)
    np.testing.assert_allclose(got, expected, **CLOSE)
    assert min(expected) < 0, "gates may be negative, and so may scores"

    best = sorted(range(t + 1), key=lambda s: -expected[s])[:top]
    assert sorted(dsa.select(got, t, top)) == sorted(best)
    assert sorted(dsa.select(got, 2, top)) == [0, 1, 2], "fewer than are kept: all, and none of the future"


def test_sparse_attention_over_all_tokens_is_dense_attention_and_over_some_is_masked() -> None:
    dsa = load("deepseek_sparse_attention")
    heads, latent, p, tokens = 3, 8, 4, 11
    q, cache, scale = draw(1, heads, latent + p), draw(2, tokens, latent + p), 0.3
    chosen = np.array([7, 0, 4])
    got = dsa.attend(q, cache, chosen, latent, scale)
    for h in range(heads):
        scores = [float(q[h] @ row) * scale if t in chosen else -1e300 for t, row in enumerate(cache)]
        expected = sum(s * row[:latent] for s, row in zip(softmax(scores), cache, strict=True))
        np.testing.assert_allclose(got[h], expected, **CLOSE)


# ---- DeepSeek V4


def slow_entry(slots: list[tuple[np.ndarray, np.ndarray]], weight: np.ndarray, position: int, freq: np.ndarray) -> np.ndarray:
    """`slots`: (c, gate with bias) of each token that an entry mixes, channel by channel."""
    d = len(weight)
    mixed = np.array([
        sum(s * float(c[j]) for s, (c, _) in zip(softmax([float(z[j]) for _, z in slots]), slots, strict=True)) for j in range(d)
    ])  # fmt: skip
    last = [(d - 2 * len(freq) + 2 * i, d - 2 * len(freq) + 2 * i + 1) for i in range(len(freq))]
    return turned(norm(mixed) * weight, last, position, freq)


@pytest.mark.parametrize("tokens", [3, 4, 15, 16])
def test_heavily_compressed_entries(tokens: int) -> None:
    v4 = load("deepseek_v4_attention")
    m, d, freq = 4, 10, frequencies(2)
    c, z, bias, weight = draw(1, tokens, d), draw(2, tokens, d) * 3, draw(3, m, d), draw(4, d)
    got = v4.hca(c, z, bias, weight, freq)
    assert len(got) == tokens // m
    for i, entry in enumerate(got):
        slots = [(c[i * m + j], z[i * m + j] + bias[j]) for j in range(m)]
        np.testing.assert_allclose(entry, slow_entry(slots, weight, i * m, freq), **CLOSE)


@pytest.mark.parametrize("tokens", [3, 4, 15, 16])
def test_sparsely_compressed_entries_overlap(tokens: int) -> None:
    v4 = load("deepseek_v4_attention")
    m, d, freq = 4, 10, frequencies(2)
    c, z, bias, weight = draw(1, tokens, 2 * d), draw(2, tokens, 2 * d) * 3, draw(3, m, 2 * d), draw(4, d)
    got = v4.csa(c, z, bias, weight, freq)
    assert len(got) == tokens // m
    for i, entry in enumerate(got):
        before = [(c[(i - 1) * m + j, :d], z[(i - 1) * m + j, :d] + bias[j, :d]) for j in range(m)] if i else []
        own = [(c[i * m + j, d:], z[i * m + j, d:] + bias[j, d:]) for j in range(m)]
        np.testing.assert_allclose(entry, slow_entry(before + own, weight, i * m, freq), **CLOSE)


def test_selection_looks_at_visible_entries_only() -> None:
    v4 = load("deepseek_v4_attention")
    q, keys, gate = draw(1, 4, 6), draw(2, 9, 6), draw(3, 4)
    scores = [sum(gate[h] / 2 * max(0.0, float(q[h] @ k) / math.sqrt(6)) for h in range(4)) for k in keys]
    assert sorted(v4.select(q, keys, gate, 7, 3)) == sorted(sorted(range(7), key=lambda i: -scores[i])[:3])
    assert list(v4.select(q, keys, gate, 0, 3)) == []


def test_v4_attends_with_a_sink_and_turns_back() -> None:
    v4 = load("deepseek_v4_attention")
    heads, d, t, freq = 3, 10, 21, frequencies(2)
    q, recent, entries, sink = draw(1, heads, d), draw(2, 5, d), draw(3, 4, d), draw(4, heads) * 4
    got = v4.attend(q, recent, entries, sink, (t, freq))
    pairs = [(d - 4, d - 3), (d - 2, d - 1)]
    for h in range(heads):
        keys = [*recent, *entries]
        share = softmax([*(float(q[h] @ k) / math.sqrt(d) for k in keys), float(sink[h])])[:-1]
        mixed = sum(s * k for s, k in zip(share, keys, strict=True))
        np.testing.assert_allclose(got[h], turned(mixed, pairs, -t, freq), **CLOSE)
        lse = math.log(sum(math.exp(float(q[h] @ k) / math.sqrt(d)) for k in keys))
        plain = sum(s * k for s, k in zip(softmax([float(q[h] @ k) / math.sqrt(d) for k in keys]), keys, strict=True))
        np.testing.assert_allclose(mixed, plain / (1 + math.exp(sink[h] - lse)), **CLOSE)


# ---- NVFP4


def e4m3_value(code: int) -> float:
    """By the bits: sign, 4 of exponent (bias 7), 3 of mantissa. 0x7f and 0xff are NaN."""
    exponent, mantissa = code >> 3 & 15, code & 7
    size = mantissa * 2.0**-9 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10)
    return -size if code & 128 else size


def test_e4m3_is_the_nearest_value_with_ties_to_even() -> None:
    nvfp4 = load("nvfp4")
    codes = range(127)
    values = [e4m3_value(c) for c in codes]
    assert values[-1] == 448.0
    middles = [(a + b) / 2 for a, b in pairwise(values)]
    x = np.array([*values, *middles, *np.abs(draw(1, 300)), *(np.abs(draw(2, 300)) * 200), *(np.abs(draw(3, 200)) * 0.01), 600.0])
    expected = [values[min(codes, key=lambda c: (abs(values[c] - float(v)), c % 2))] for v in x]
    np.testing.assert_array_equal(nvfp4.e4m3(x), expected)
    np.testing.assert_array_equal(nvfp4.e4m3(-x), -np.array(expected))


def test_e2m1_is_the_nearest_value_with_ties_to_even() -> None:
    nvfp4 = load("nvfp4")
    values = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
    x = np.array([*values, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 100.0, *np.abs(draw(1, 500) * 3)])
    expected = [min(range(8), key=lambda c: (abs(values[c] - float(v)), c % 2)) for v in x]
    np.testing.assert_array_equal(nvfp4.e2m1(x), expected)
    np.testing.assert_array_equal(nvfp4.e2m1(-x) & 7, expected)
    assert nvfp4.e2m1(np.array([-3.0]))[0] == 13


def test_nvfp4_there_and_back_block_by_block() -> None:
    nvfp4 = load("nvfp4")
    x = draw(1, 6, 48) * np.exp(draw(2, 6, 48))
    x[2, 16:32] = 0.0
    codes, scales, g = nvfp4.quantise(x)
    assert g == pytest.approx(2688 / np.abs(x).max())
    got = nvfp4.dequantise(codes, scales, g)
    values = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
    for row in range(6):
        for block in range(3):
            part = x[row, block * 16 : block * 16 + 16]
            wish = g * max(abs(float(v)) for v in part) / 6
            scale = min((e4m3_value(c) for c in range(127)), key=lambda v: abs(v - wish))
            assert scales[row, block] == scale
            for j, v in enumerate(part):
                signed = [s * u * scale / g for u in values for s in (1, -1)]
                nearest = min(signed, key=lambda u: abs(u - float(v))) if scale else 0.0
                assert got[row, block * 16 + j] == pytest.approx(nearest, abs=1e-12)
    assert np.abs(got - x).max() <= np.abs(x).max() / 6 * 1.13, "half of the widest gap, 4 to 6, and what the scale rounds"


def test_packing_puts_even_places_low() -> None:
    nvfp4 = load("nvfp4")
    codes = np.arange(16, dtype=np.uint8).reshape(1, 16)
    assert nvfp4.pack(codes).tolist() == [[16 * (2 * i + 1) + 2 * i for i in range(8)]]


def test_scale_places_are_the_permutation_that_undoes_them() -> None:
    nvfp4 = load("nvfp4")
    rows, blocks = 256, 12
    memory = np.arange(rows * blocks)
    undone = memory.reshape(rows // 128, blocks // 4, 32, 4, 4).transpose(0, 3, 2, 1, 4).reshape(rows, blocks)
    expected = [[nvfp4.scale_place(r, b, blocks) for b in range(blocks)] for r in range(rows)]
    np.testing.assert_array_equal(undone, expected)
    assert nvfp4.scale_place(0, 4, 5) == 512, "scales are padded to fours: a row of 5 takes two tiles"
