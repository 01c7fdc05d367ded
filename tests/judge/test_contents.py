"""New contents for many sets: mixed per element, poisoned, compared between two arms, and handed back as they were."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from random import Random
from typing import Any

import numpy as np
import pytest

from keepfast.judge import sets
from keepfast.judge.compare import Budget
from keepfast.judge.contents import Found, Library, Sets
from keepfast.judge.sets import Draw, view
from keepfast.model import Argument, Case
from keepfast.task.signature import parse
from tests.judge.tasks import softmax_task

CASE = Case("main", (("n", 4096),))
N = 4096
TIGHT = Budget(1e-6, 1e-5)
Make = Callable[..., Sets]


@pytest.fixture
def make(library: Library) -> Iterator[Make]:
    """Sets of a signature: one draw of the bank for each mapping of values."""
    with ExitStack() as stack:

        def made(
            signature: str, bank: list[Mapping[str, Any]], outputs: Mapping[str, np.ndarray], count: int = 6, **changes: object
        ) -> Sets:
            task = softmax_task(signature=parse(signature), **changes)
            draws = []
            for values in bank:
                layout, words = sets.plan(task.signature, CASE, values, outputs)
                draws.append(Draw(CASE, layout, words, *sets.images(task.signature, layout, values)))
            found = Sets(library, task, tuple(draws), count)
            stack.callback(found.close)
            return found

        yield made


def numbered(dtype: str, count: int = 4) -> list[Mapping[str, Any]]:
    """Draws whose elements tell which draw they are of (hundreds) and, coarsely, where they were."""
    place = np.arange(N) % 100
    return [{"x": (100 * i + place).astype(dtype)} for i in range(count)]


def given(found: Sets, index: int, name: str = "x") -> np.ndarray:
    slot = found.layout.slot(name)
    array, size = (found.inputs.array, found.layout.in_bytes) if slot.region == "in" else (found.outputs[0].array, found.layout.out_bytes)
    return view(array, slot, index * size)


def result(found: Sets, arm: int, index: int, name: str = "out") -> np.ndarray:
    return view(found.outputs[arm].array, found.layout.slot(name), index * found.layout.out_bytes)


OUT = {"out": np.zeros(N, np.float32)}


# --------------------------------------------------------------------------------------------- contents


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_every_element_comes_from_one_of_two_draws(make: Make, dtype: str) -> None:
    found = make("f(Tensor x) -> Tensor", numbered(dtype), OUT, count=8)
    found.refresh(Random(1))
    for index in range(8):
        x, recipe = given(found, index), found.recipes[index]
        assert recipe.own == index % 4
        assert recipe.other != recipe.own
        assert np.array_equal(x % 100, np.arange(N) % 100)
        drawn, counts = np.unique(x // 100, return_counts=True)
        assert set(drawn) == {recipe.own, recipe.other}
        assert 0.4 * N < counts[0] < 0.6 * N


def test_no_contents_come_twice(make: Make) -> None:
    found = make("f(Tensor x) -> Tensor", numbered("float32"), OUT, count=16)
    rng, seen = Random(2), set[bytes]()
    for _ in range(10):
        found.refresh(rng)
        seen |= {given(found, i).tobytes() for i in range(16)}
    assert len(seen) == 160
    assert not seen & {draw["x"].tobytes() for draw in numbered("float32")}


def test_which_elements_are_mixed_is_another_choice_for_every_tensor(make: Make) -> None:
    bank = [{"x": x["x"], "y": x["x"]} for x in numbered("float32")]
    found = make("f(Tensor x, Tensor y) -> Tensor", bank, OUT)
    found.refresh(Random(3))
    same = given(found, 0, "x") == given(found, 0, "y")
    assert 0.4 < same.mean() < 0.6


@pytest.mark.parametrize(("dtype", "refresh"), [("int32", "element"), ("uint8", "element"), ("bool", "element"), ("float32", "whole")])
def test_integers_and_whole_draws_are_used_as_they_are(make: Make, dtype: str, refresh: str) -> None:
    bank = numbered(dtype)
    found = make("f(Tensor x) -> Tensor", bank, OUT, arguments=(Argument("x", refresh=refresh),))
    found.refresh(Random(4))
    for index in range(6):
        assert np.array_equal(given(found, index), bank[index % 4]["x"])


def test_strided_arguments_are_mixed_where_they_lie(make: Make) -> None:
    bank = [{"x": np.repeat(draw["x"], 2).reshape(N, 2)[::-1, 0]} for draw in numbered("float32")]
    found = make("f(Tensor x) -> Tensor", bank, OUT)
    found.refresh(Random(5))
    x, recipe = given(found, 1), found.recipes[1]
    assert x.strides == (-8,)
    assert set(x // 100) == {recipe.own, recipe.other}


def test_scalars_behind_pointers_are_those_of_the_rows_draw(make: Make) -> None:
    bank = [{"x": draw["x"], "k": 7 + i, "mode": f"m{i}"} for i, draw in enumerate(numbered("float32"))]
    found = make("f(Tensor x, int? k, str mode) -> Tensor", bank, OUT)
    found.refresh(Random(6))
    for index in range(6):
        assert given(found, index, "k").view(np.int64)[0] == 7 + index % 4
        assert given(found, index, "mode").tobytes() == f"m{index % 4}\0".encode()


def test_outputs_are_poisoned_anew_and_alike_in_both_arms(make: Make) -> None:
    found = make("f(Tensor(a!) x) -> Tensor", numbered("float32"), OUT)
    rng, poisons = Random(7), set()
    for _ in range(3):
        found.refresh(rng)
        poisons.add(found.poison)
        out = result(found, 0, 3)
        assert set(out.view(np.uint32)) == {found.poison}
        assert np.isnan(out).all()
        assert np.isnan(out.view(np.float64)).all()
        assert np.isnan(out.view(np.float16)[1::2]).all()
        assert np.array_equal(found.outputs[0].array, found.outputs[1].array)
        assert not np.isnan(given(found, 3)).any()
    assert len(poisons) == 3


def test_a_subject_cannot_map_its_inputs_to_write(make: Make) -> None:
    found = make("f(Tensor x) -> Tensor", numbered("float32"), OUT)
    with pytest.raises(PermissionError):
        mmap.mmap(found.inputs.fd, found.inputs.size, mmap.MAP_SHARED, mmap.PROT_WRITE)
    mmap.mmap(found.inputs.fd, found.inputs.size, mmap.MAP_SHARED, mmap.PROT_READ).close()


# --------------------------------------------------------------------------------------------- differences


def answered(found: Sets, seed: int = 8) -> None:
    """Refreshed, and both arms give the same answer in every set."""
    found.refresh(Random(seed))
    values = np.random.default_rng(seed).standard_normal((found.count, N))
    for name in found.task.signature.results:
        for index in range(found.count):
            for arm in (0, 1):
                out = result(found, arm, index, name)
                out[...] = (values[index] * 50).reshape(out.shape).astype(out.dtype)


OUTPUTS = {
    "float32": np.zeros((32, 128), np.float32),
    "float64": np.zeros((32, 128)),
    "float16": np.zeros((32, 128), np.float16),
    "one row": np.zeros(N, np.float32),
    "int32": np.zeros((32, 128), np.int32),
}


@pytest.mark.parametrize("kind", OUTPUTS)
def test_a_planted_difference_is_found_where_it_is(make: Make, kind: str) -> None:
    found = make("f(Tensor x) -> Tensor", numbered("float32"), {"out": OUTPUTS[kind]})
    answered(found)
    assert found.differing({"out": TIGHT}) == []
    out = result(found, 0, 4)
    out[(-1,) * out.ndim] += 1
    assert found.differing({"out": TIGHT}) == [Found(4, "out")]


@pytest.mark.parametrize("kind", ["float32", "float64", "float16"])
def test_rounding_is_no_difference_and_a_nan_is_one(make: Make, kind: str) -> None:
    found = make("f(Tensor x) -> Tensor", numbered("float32"), {"out": OUTPUTS[kind]})
    answered(found)
    eps = np.finfo(OUTPUTS[kind].dtype).eps
    out = result(found, 0, 2)
    out *= 1 + eps
    assert not np.array_equal(out, result(found, 1, 2))
    assert found.differing({"out": Budget(4 * eps, 40 * eps)}) == []
    out[0, 0] = np.nan
    assert found.differing({"out": Budget(4 * eps, 40 * eps)}) == [Found(2, "out")]


def test_one_far_element_counts_even_where_the_whole_is_close(make: Make) -> None:
    for kind in ("one row", "float16"):
        found = make("f(Tensor x) -> Tensor", numbered("float32"), {"out": OUTPUTS[kind]})
        answered(found)
        out = result(found, 0, 0)
        out[(0,) * out.ndim] += 10
        assert found.differing({"out": Budget(0.5, 1e-3)}) == [Found(0, "out")]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_an_empty_slice_is_held_to_the_size_of_the_others(make: Make, dtype: str) -> None:
    """As in the check: a row of zeros with a rounding error in it is no difference, one with an answer in it is."""
    found = make("f(Tensor x) -> Tensor", numbered("float32"), {"out": np.zeros((32, 128), dtype)})
    answered(found)
    for arm in (0, 1):
        result(found, arm, 1)[5] = 0
    size, budget = 50.0, Budget(0.01, 0.1)
    result(found, 0, 1)[5] = 0.5e-6 * size * 0.01
    assert found.differing({"out": budget}) == []
    result(found, 0, 1)[5] = 1e-3
    assert found.differing({"out": budget}) == [Found(1, "out")]


def test_eight_bit_codes_may_differ_in_few_places(make: Make) -> None:
    found = make("f(Tensor x) -> Tensor", numbered("float32"), {"out": np.zeros((32, 128), np.int8)})
    found.refresh(Random(9))
    for arm in (0, 1):
        for index in range(found.count):
            result(found, arm, index)[...] = 3
    result(found, 0, 0)[0, :30] += 1
    result(found, 0, 1)[0, 0] += 3
    result(found, 0, 2)[...] += 1
    assert found.differing({"out": Budget(0.0, 0.0)}) == [Found(1, "out"), Found(2, "out")]


def test_written_arguments_are_compared_too_also_with_strides(make: Make) -> None:
    bank = [{"x": np.repeat(draw["x"], 2)[::2]} for draw in numbered("float32")]
    found = make("f(Tensor(a!) x) -> Tensor(a!)", bank, {})
    found.refresh(Random(10))
    assert found.differing({"x": TIGHT}) == []
    result(found, 0, 5, "x")[7] *= 1.5
    assert found.differing({"x": TIGHT}) == [Found(5, "x")]


# --------------------------------------------------------------------------------------------- canaries and copies


def test_a_write_anywhere_between_outputs_is_seen(make: Make) -> None:
    found = make("f(Tensor(a!) x) -> (Tensor out, Tensor more)", numbered("float32"), {**OUT, "more": np.zeros(5, np.float16)})
    found.refresh(Random(11))
    outs, size = found.layout.outs(), found.layout.out_bytes
    inside = {at for s in outs for at in range(s.base, s.base + s.span)}
    beside = [at for s in outs for at in (s.base - sets.GAP, s.base - 1, s.base + s.span + 3)] + [0, size - 1]
    for at in beside:
        assert at not in inside
        before = found.outputs[0].array[size + at]
        found.outputs[0].array[size + at] = before ^ 1
        assert found.differing({}) == [Found(1, "", canary=True)]
        found.outputs[0].array[size + at] = before
    for at in inside:
        found.outputs[0].array[size + at] ^= 1
    assert found.differing({}) == []


def test_the_arm_of_the_opponent_is_not_the_subjects_fault(make: Make) -> None:
    found = make("f(Tensor x) -> Tensor", numbered("float32"), OUT)
    answered(found)
    found.outputs[1].array[0] ^= 1
    assert found.differing({"out": TIGHT}) == []


def test_a_drawn_set_is_what_was_in_the_buffers(make: Make) -> None:
    bank = [{"x": draw["x"], "y": draw["x"] + 7, "k": i} for i, draw in enumerate(numbered("float32"))]
    found = make("f(Tensor(a!) x, Tensor y, int k) -> Tensor", bank, OUT)
    found.refresh(Random(12))
    first = given(found, 3, "x").copy()
    result(found, 0, 3, "x")[...] = -1.0
    result(found, 0, 3)[...] = 5.0
    draw, got = found.drawn(3)
    assert np.array_equal(view(draw.in_image, found.layout.slot("y")), given(found, 3, "y"))
    assert np.array_equal(view(draw.out_image, found.layout.slot("x")), first)
    assert (view(got, found.layout.slot("x")) == -1.0).all()
    assert (view(got, found.layout.slot("out")) == 5.0).all()
    assert draw.words[2].value == 3
    assert draw.case == CASE
    found.refresh(Random(13))
    assert (view(got, found.layout.slot("out")) == 5.0).all()
    assert np.array_equal(view(draw.out_image, found.layout.slot("x")), first)


def test_the_sentinel_takes_time(library: Library) -> None:
    assert library.sentinel_ns() > 10_000
