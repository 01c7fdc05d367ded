"""The error budget: rounding passes, everything worse does not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepfast.judge import compare
from keepfast.judge.compare import Budget, Mismatch


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def draw(seed: int, m: int = 32, n: int = 1024) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    x = np.random.default_rng(seed).standard_normal((m, n), dtype=np.float32)
    return x, softmax(x), softmax(x.astype(np.float64))


@given(st.integers(0, 10_000))
@settings(max_examples=50, deadline=None)
def test_a_result_rounded_once_passes(seed: int) -> None:
    _, working, exact = draw(seed)
    assert isinstance(compare.judge("y", exact.astype(np.float32), working, exact, (1024.0, 1.0)), Budget)
    assert isinstance(compare.judge("y", working, working, exact, (1024.0, 1.0)), Budget)


@pytest.mark.parametrize("wrong", ["half", "tail", "row", "scaled", "nan", "inf", "tiny"])
def test_a_wrong_result_fails_and_is_named(wrong: str) -> None:
    _, working, exact = draw(1)
    got = working.copy()
    if wrong == "half":
        got = got.astype(np.float16).astype(np.float32)
    elif wrong == "tail":
        got[:, -1] = 0
    elif wrong == "row":
        got[17] = got[16]
    elif wrong == "scaled":
        got *= np.float32(1 + 1e-4)
    elif wrong == "nan":
        got[3, 5] = np.nan
    elif wrong == "inf":
        got[3, 5] = np.inf
    else:
        got[3, 5] += np.float32(1e-6)
    found = compare.judge("y", got, working, exact, (1024.0, 1.0))
    assert isinstance(found, Mismatch)
    assert found.detail.startswith("y[")
    if wrong in ("nan", "inf", "tiny"):
        assert found.index == (3, 5)
    if wrong == "tail":
        assert "(only the last 1 column)" in found.detail
    if wrong == "row":
        assert "(1 of 32 rows)" in found.detail


def test_a_scale_of_the_tolerance_widens_it() -> None:
    _, working, exact = draw(2)
    got = working * np.float32(1 + 3e-6)
    assert isinstance(compare.judge("y", got, working, exact, (1024.0, 1.0)), Mismatch)
    assert isinstance(compare.judge("y", got, working, exact, (1024.0, 100.0)), Budget)


def test_integers_are_exact_and_eight_bit_codes_may_be_off_by_one_in_few_places() -> None:
    wanted = np.arange(1000, dtype=np.int32)
    assert isinstance(compare.judge("i", wanted, wanted, wanted, (1.0, 1.0)), Budget)
    off = wanted.copy()
    off[7] += 1
    found = compare.judge("i", off, wanted, wanted, (1.0, 1.0))
    assert isinstance(found, Mismatch)
    assert found.index == (7,)
    codes = (np.arange(1000) % 100).astype(np.int8)
    few, many = codes.copy(), codes + np.int8(1)
    few[:5] += 1
    assert isinstance(compare.judge("q", few, codes, codes, (1.0, 1.0)), Budget)
    assert isinstance(compare.judge("q", many, codes, codes, (1.0, 1.0)), Mismatch)


def test_a_zero_slice_does_not_excuse_anything_large() -> None:
    exact = np.zeros((4, 64))
    exact[1:] = 1.0
    working = exact.astype(np.float32)
    got = working.copy()
    got[0, 3] = 1e-3
    assert isinstance(compare.judge("y", got, working, exact, (64.0, 1.0)), Mismatch)
    assert isinstance(compare.judge("y", working, working, exact, (64.0, 1.0)), Budget)


def test_empty_and_scalar_results() -> None:
    empty = np.zeros((0, 5), np.float32)
    assert isinstance(compare.judge("e", empty, empty, empty.astype(float), (5.0, 1.0)), Budget)
    one = np.float32(2.0) * np.ones((), np.float32)
    assert isinstance(compare.judge("s", one, one, one.astype(float), (1.0, 1.0)), Budget)
    assert isinstance(compare.judge("s", one + 1, one, one.astype(float), (1.0, 1.0)), Mismatch)


def test_variation_between_launches() -> None:
    _, working, _ = draw(3)
    assert not compare.varies(working, working.copy(), Budget(1e-6, 1e-5))
    assert not compare.varies(working, np.nextafter(working, np.float32(1)), Budget(1e-6, 1e-5))
    moved = working.copy()
    moved[0, 0] += 1
    assert compare.varies(working, moved, Budget(1e-6, 1e-5))


@pytest.mark.parametrize(("a", "b"), [(0, 2**63), (2**64 - 1, 0), (5, 6)])
def test_whole_numbers_of_any_width_are_told_apart(a: int, b: int) -> None:
    one, other = np.array([a], np.uint64), np.array([b], np.uint64)
    assert isinstance(compare.judge("u", one, other, other, (1.0, 1.0)), Mismatch)
    assert compare.varies(one, other, Budget(0.0, 0.0))
    low, high = np.array([-(2**63)], np.int64), np.array([2**63 - 1], np.int64)
    assert int(compare._apart(low, high)[0]) == 2**64 - 1
