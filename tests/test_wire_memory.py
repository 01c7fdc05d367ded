"""Shared memory, tensors in it, and call tables."""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast import wire
from keepfast.wire import Scalar, Tensor, WireError


def test_memory_keeps_its_size() -> None:
    fd = wire.memfd("fixed", 5000)
    for size in (0, 4999, 5001):
        with pytest.raises(PermissionError):
            os.ftruncate(fd, size)
    wire.check(fd, 5000)
    with pytest.raises(WireError, match="not shared memory of 4096"):
        wire.check(fd, 4096)
    os.close(fd)


def test_sealed_against_writes_but_not_for_us() -> None:
    fd = wire.memfd("inputs", 4096)
    with pytest.raises(WireError, match="not sealed"):
        wire.check(fd, 4096, read_only=True)
    ours = mmap.mmap(fd, 4096)
    wire.seal_writes(fd)
    wire.check(fd, 4096, read_only=True)
    ours[:5] = b"fresh"
    assert mmap.mmap(fd, 4096, prot=mmap.PROT_READ)[:5] == b"fresh"
    with pytest.raises(PermissionError):
        mmap.mmap(fd, 4096)
    with pytest.raises(PermissionError):
        os.pwrite(fd, b"x", 0)
    os.close(fd)


def test_no_more_seals() -> None:
    fd = wire.memfd("outputs", 4096)
    wire.seal_seals(fd)
    wire.seal_seals(fd)
    with pytest.raises(PermissionError):
        wire.seal_writes(fd)
    assert mmap.mmap(fd, 4096)
    os.close(fd)


def test_other_descriptors_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345678")
    with (tmp_path / "file").open("r+b") as file, pytest.raises(WireError):
        wire.check(file.fileno(), 8)
    read, write = os.pipe()
    with pytest.raises(WireError):
        wire.check(read, 0)
    os.close(read)
    os.close(write)
    unsealed = os.memfd_create("unsealed", os.MFD_ALLOW_SEALING)
    os.ftruncate(unsealed, 8)
    with pytest.raises(WireError, match="not sealed"):
        wire.check(unsealed, 8)
    os.close(unsealed)


@pytest.mark.parametrize("size", [0, -1])
def test_no_empty_memory(size: int) -> None:
    with pytest.raises(WireError):
        wire.memfd("none", size)


# ---- tensors

shapes = st.lists(st.integers(0, 4), max_size=4).map(tuple)


@given(shapes, st.data())
def test_view_is_what_numpy_made(shape: tuple[int, ...], data: st.DataObject) -> None:
    """Any slicing of an array of any type, described by its strides, is found again in its bytes."""
    dtype = data.draw(st.sampled_from(["float64", "float32", "float16", "int8", "uint16", "int64", "bool"]))
    full = np.arange(1, 1 + np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    part = full[(*(data.draw(st.slices(n)) for n in shape), ...)]
    offset = part.__array_interface__["data"][0] - full.__array_interface__["data"][0] if part.size else 0
    found = wire.view(full.tobytes(), Tensor("t", dtype, part.shape, part.strides, offset, full.nbytes))
    assert (found == part).all()
    assert found.shape == part.shape
    assert not found.flags.writeable


@given(shapes, st.lists(st.integers(-64, 64), max_size=4), st.integers(0, 300), st.integers(0, 300), st.integers(0, 256))
def test_view_never_leaves_the_buffer(shape: tuple[int, ...], strides: list[int], offset: int, nbytes: int, size: int) -> None:
    try:
        tensor = Tensor("t", "float32", shape, tuple(strides), offset, nbytes)
    except ValueError:
        assert len(shape) != len(strides)
        return
    buffer = np.zeros(size, np.uint8)
    try:
        found = wire.view(memoryview(buffer), tensor)
    except WireError:
        return
    if found.size:
        start = buffer.__array_interface__["data"][0] if size else 0
        low, high = np.lib.array_utils.byte_bounds(found)
        assert start <= low <= high <= start + size
        assert high - start - offset <= nbytes


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float4_e2m1", "object", "O", "complex64", "datetime64"])
def test_types_that_numpy_cannot_hold(dtype: str) -> None:
    with pytest.raises(WireError, match="cannot hold"):
        wire.view(b"12345678", Tensor("t", dtype, (1,), (8,), 0, 8))


def test_tensors_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="1 sizes, 2 strides"):
        Tensor("t", "float32", (1,), (4, 4))
    with pytest.raises(ValueError, match="negative"):
        Tensor("t", "float32", (-1,), (4,))
    with pytest.raises(ValueError, match="negative"):
        Tensor("t", "float32", (1,), (4,), -4)


def test_layouts_travel() -> None:
    layout = (Tensor("x", "float32", (2, 3), (12, 4), 0, 24), Scalar("eps", "float"), Scalar("mode", "str"))
    fd = wire.pack_layout(layout)
    assert wire.read_layout(os.pread(fd, 10000, 0)) == layout
    os.close(fd)
    for bad in (b"", b"{}", b'[{"type":"other"}]', b'[{"type":"tensor","name":"x","dtype":"float32","shape":[1],"strides_bytes":[]}]'):
        with pytest.raises(WireError, match="layout"):
            wire.read_layout(bad)


# ---- call tables

cells = st.none() | st.integers(-(2**63), 2**64 - 1) | st.floats()


@given(st.integers(1, 6), st.data())
def test_table_holds_its_words(columns: int, data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.integers(0, 3), min_size=columns, max_size=columns))
    rows = data.draw(st.lists(st.lists(cells, min_size=columns, max_size=columns), min_size=1, max_size=4))
    fd = wire.table(kinds, rows)
    size = os.fstat(fd).st_size
    wire.check(fd, size, read_only=True)
    raw = os.pread(fd, size, 0)
    os.close(fd)
    assert struct.unpack_from(f"<4I{columns}I", raw) == (wire.TABLE_MAGIC, columns, len(rows), 0, *kinds)
    assert wire.table_start(columns) % 8 == 0
    words = struct.unpack_from(f"<{columns * len(rows)}Q", raw, wire.table_start(columns))
    assert size == wire.table_start(columns) + 8 * len(words)
    flat = [(kind, cell) for row in rows for kind, cell in zip(kinds, row, strict=True)]
    for (kind, cell), word in zip(flat, words, strict=True):
        assert word == (0 if kind == 0 and cell is None else wire.word(cell))


@given(st.integers(-(2**63), 2**63 - 1), st.floats())
def test_words(number: int, real: float) -> None:
    assert struct.unpack("<q", wire.word(number).to_bytes(8, "little"))[0] == number
    assert wire.word(real).to_bytes(8, "little") == struct.pack("<d", real)
    assert wire.word(None) == 2**64 - 1
    assert wire.word(True) == 1
    assert wire.word(np.int64(-1)) == 2**64 - 1
    with pytest.raises(WireError, match="64 bits"):
        wire.word(2**64)


@pytest.mark.parametrize(("kinds", "rows"), [([], [[]]), ([0], []), ([0, 1], [[1, 2], [3]])])
def test_tables_that_cannot_be(kinds: list[int], rows: list[list[float | None]]) -> None:
    with pytest.raises(WireError, match="call table"):
        wire.table(kinds, rows)
