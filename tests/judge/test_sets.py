"""Buffers of one call: nothing overlaps, canaries fit between, and every array and scalar comes back as it was."""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from keepfast import wire
from keepfast.errors import TaskError
from keepfast.judge import sets
from keepfast.judge.oracle import values_from
from keepfast.judge.oracle_records import Job
from keepfast.judge.sets import ALIGN, GAP, Layout, Slot, Word
from keepfast.judge.table import described
from keepfast.model import Arg, Case, Return, Signature

CASE = Case("c", (("m", 3), ("n", 2**40)))
DTYPES = ("float64", "float32", "float16", "int8", "int32", "int64", "uint8", "uint16", "bool")


class Call(Struct):
    """A signature with a value for every argument, laid out."""

    signature: Signature
    values: Mapping[str, Any]
    outputs: Mapping[str, np.ndarray]
    layout: Layout
    words: tuple[Word, ...]


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    """Arrays of 0 to 3 dimensions, empty ones among them; cut with steps, turned round, transposed or spread by broadcasting."""
    shape = draw(st.lists(st.integers(0, 5), max_size=3))
    dtype = draw(st.sampled_from(DTYPES))
    steps = [draw(st.sampled_from((1, 1, 2, 3, -1, -2))) for _ in shape]
    whole = np.arange(math.prod(n * abs(s) for n, s in zip(shape, steps, strict=True))).astype(dtype)
    array = whole.reshape([n * abs(s) for n, s in zip(shape, steps, strict=True)])
    array = array[tuple(slice(None, None, s) for s in steps)]
    if array.ndim > 1 and draw(st.booleans()):
        array = array.T
    if array.ndim == 1 and draw(st.booleans()):
        array = np.broadcast_to(array, (2, *array.shape))
    return array


@st.composite
def calls(draw: st.DrawFn) -> Call:
    made = [draw(_argument(f"a{i}")) for i in range(draw(st.integers(0, 5)))]
    outputs = {f"out{i}": draw(arrays()) for i in range(draw(st.integers(0, 3)))}
    signature = Signature("f", tuple(a for a, _ in made), tuple(Return(name) for name in outputs), "f(...)")
    values = {a.name: value for a, value in made}
    return Call(signature, values, outputs, *sets.plan(signature, CASE, values, outputs))


@st.composite
def _argument(draw: st.DrawFn, name: str) -> tuple[Arg, Any]:
    kind = draw(st.sampled_from(("tensor", "tensor", "int", "float", "bool", "str")))
    values = {
        "tensor": arrays(),
        "int": st.integers(-(2**63), 2**63 - 1),
        "float": st.floats(allow_nan=False),
        "bool": st.booleans(),
        "str": st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20),
    }
    optional = kind != "str" and draw(st.booleans())
    arg = Arg(name, kind, optional=optional, written=kind == "tensor" and draw(st.booleans()))
    return arg, None if optional and draw(st.booleans()) else draw(values[kind])


def in_region(layout: Layout, region: str) -> list[Slot]:
    return [s for s in layout.slots if s.region == region and s.span]


@given(calls())
@settings(max_examples=150, deadline=None)
def test_tensors_never_overlap_and_outputs_have_canaries_all_round(call: Call) -> None:
    layout = call.layout
    for region, size, gap in (("in", layout.in_bytes, 0), ("out", layout.out_bytes, GAP)):
        end = 0
        for slot in in_region(layout, region):
            assert slot.base % ALIGN == 0
            assert slot.base - end >= gap
            assert slot.base <= slot.start < slot.base + slot.span
            end = slot.base + slot.span
        assert size - end >= gap
        assert size % GAP == 0
    outs = [s.name for s in layout.outs()]
    assert sorted(outs) == sorted([*call.outputs, *(a.name for a in call.signature.written if call.values[a.name] is not None)])


@given(calls())
@settings(max_examples=150, deadline=None)
def test_arrays_come_back_from_the_images_with_their_strides(call: Call) -> None:
    images = dict(zip(("in", "out"), sets.images(call.signature, call.layout, call.values), strict=True))
    for arg in call.signature.args:
        value = call.values[arg.name]
        if arg.kind != "tensor" or value is None:
            continue
        slot = call.layout.slot(arg.name)
        found = sets.view(images[slot.region], slot)
        assert (found.dtype, found.shape) == (value.dtype, value.shape)
        assert value.size == 0 or found.strides == value.strides
        assert np.array_equal(found, value)
        assert slot.contiguous == value.flags.c_contiguous or value.size <= 1 or 1 in value.shape


@given(calls())
@settings(max_examples=100, deadline=None)
def test_fresh_outputs_are_contiguous_whatever_the_reference_returned(call: Call) -> None:
    image = np.zeros(call.layout.out_bytes, np.uint8)
    for name, array in call.outputs.items():
        found = sets.view(image, call.layout.slot(name))
        assert (found.shape, found.dtype) == (array.shape, array.dtype)
        assert found.flags.c_contiguous
        assert call.layout.slot(name).span == array.size * array.itemsize


@given(calls())
@settings(max_examples=150, deadline=None)
def test_every_argument_can_be_read_back_from_the_words(call: Call) -> None:
    images = sets.images(call.signature, call.layout, call.values)
    fds = [memfd(image) for image in images]
    try:
        found = values_from(call.signature, Job("check", CASE, layout=call.layout, words=call.words), fds)
    finally:
        for fd in fds:
            os.close(fd)
    assert list(found) == list(call.values)
    for name, value in call.values.items():
        assert np.array_equal(found[name], value) if isinstance(value, np.ndarray) else found[name] == value, name


@given(calls())
@settings(max_examples=100, deadline=None)
def test_a_runner_in_python_sees_the_same_arrays(call: Call) -> None:
    images = dict(zip(("in", "out"), sets.images(call.signature, call.layout, call.values), strict=True))
    items = described(call.signature, call.layout)
    assert [i.name for i in items] == [*call.values, *call.outputs]
    for item, word in zip(items, call.words, strict=False):
        value = call.values.get(item.name)
        if isinstance(item, wire.Tensor) and isinstance(value, np.ndarray):
            moved = wire.Tensor(item.name, item.dtype, item.shape, item.strides_bytes, item.offset + word.value, item.nbytes)
            assert np.array_equal(wire.view(images[word.kind].data, moved), value)


@given(calls())
@settings(max_examples=100, deadline=None)
def test_words_are_arguments_outputs_axes_and_the_stream(call: Call) -> None:
    args, rest = call.words[: len(call.values)], call.words[len(call.values) :]
    for arg, word in zip(call.signature.args, args, strict=True):
        value = call.values[arg.name]
        if value is None:
            assert word == Word("null")
        elif arg.kind == "tensor":
            assert word == Word("out" if arg.written else "in", call.layout.slot(arg.name).start)
        elif arg.kind == "str" or arg.optional:
            assert word == Word("in", call.layout.slot(arg.name).start)
        else:
            assert word.kind == "raw"
            assert word.value.to_bytes(8, "little") == sets.scalar_bytes(arg, value)
    outputs = [Word("out", call.layout.slot(name).start) for name in call.outputs]
    assert rest == (*outputs, Word("raw", 3), Word("raw", 2**40), Word("null"))


def memfd(image: np.ndarray) -> int:
    fd = wire.memfd("image", image.nbytes)
    os.pwrite(fd, image.tobytes(), 0)
    return fd


def test_scalars_as_the_c_abi_holds_them() -> None:
    assert sets.scalar_bytes(Arg("i", "int"), -2) == struct.pack("<q", -2)
    assert sets.scalar_bytes(Arg("f", "float"), 0.1) == struct.pack("<d", 0.1)
    assert sets.scalar_bytes(Arg("f", "float"), 3) == struct.pack("<d", 3.0)
    assert sets.scalar_bytes(Arg("b", "bool"), True) == struct.pack("<q", 1)
    assert sets.scalar_bytes(Arg("s", "str"), "é") == b"\xc3\xa9\0"
    with pytest.raises(struct.error):
        sets.scalar_bytes(Arg("i", "int"), 2**63)


@pytest.mark.parametrize("dtype", ["complex64", ">f4", "object", "U3"])
def test_a_type_that_keepfast_cannot_hold_is_named(dtype: str) -> None:
    signature = Signature("f", (Arg("x", "tensor"),), (), "f(Tensor x) -> ()")
    with pytest.raises(TaskError, match="`x` has dtype"):
        sets.plan(signature, CASE, {"x": np.zeros(3, dtype)}, {})


def test_many_sets_follow_one_another_in_a_region() -> None:
    signature = Signature("f", (Arg("x", "tensor"),), (), "f(Tensor x) -> ()")
    layout, _ = sets.plan(signature, CASE, {"x": np.arange(5, dtype=np.float32)}, {})
    region = np.zeros(3 * layout.in_bytes, np.uint8)
    for i in range(3):
        sets.view(region, layout.slot("x"), i * layout.in_bytes)[...] = i + 1
    assert region.view(np.float32).sum() == 5 * (1 + 2 + 3)
