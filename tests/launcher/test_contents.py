"""contents.cu against its description in NumPy (reference.py). Run on the host here, on a card by
tests/gpu/test_launcher_contents.py."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import ExitStack
from random import Random

import numpy as np
import pytest

from keepfast.gpu.layout import Given, Layout, Output, Tensor
from keepfast.gpu.messages import Run
from keepfast.launcher import tables
from keepfast.launcher.memory import Private
from tests.launcher.reference import contents, poison
from tests.launcher.world import World, bench, layout, tensor

U32, U64, POINTER = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_void_p
PATTERN = 0x7FC1A5F3


def given(*tensors: Tensor, size: int = 4096) -> Layout:
    named = tuple(Given(f"t{i}", "tensor", t) for i, t in enumerate(tensors))
    return Layout("small", (), (*named, Given("eps", "float", value=0.5)), (), size)


LAYOUTS = {
    "plain": layout(),
    "written": layout(written=True),
    "scratch": layout(scratch=True),
    "one row": given(tensor((64,), 0), tensor((8,), 512)),
    "three axes": given(tensor((2, 3, 20), 512)),
    "no whole granules": given(tensor((25,), 0), tensor((3, 7), 512), tensor((5,), 1024, itemsize=1, dtype="uint8")),
    "one byte": given(tensor((), 0, itemsize=1, dtype="bool"), tensor((1,), 512, itemsize=2, dtype="bfloat16")),
    "whole": given(
        tensor((4, 64), 0, refresh="whole"), tensor((4, 64), 1024, role="index", dtype="int32"), tensor((16,), 2048, role="meta")
    ),
    "strided": given(Tensor("float32", (4, 32), (64, 1), 0, 0, 4 * (3 * 64 + 32)), Tensor("float32", (8, 4), (1, 8), 1024, 1024, 128)),
    "axis of one": given(Tensor("float32", (1, 4, 1, 32), (7, 32, 99, 1), 0, 0, 512)),
    "empty": given(tensor((0, 64), 0), tensor((2, 16), 0)),
    "bytes": given(tensor((4, 48), 0, itemsize=1, dtype="float8_e4m3fn"), tensor((4, 40), 512, itemsize=1, dtype="int8")),
    "full": given(tensor((16, 64), 0), size=4096),
    "nothing": Layout("small", (), (), (Output("out", "float32", (4, 64), 1024),), 0),
}


@pytest.mark.parametrize("verbatim", [False, True])
@pytest.mark.parametrize("draws", [1, 2, 5])
@pytest.mark.parametrize("name", LAYOUTS)
def test_sets_hold_what_the_description_says(world: World, name: str, draws: int, verbatim: bool) -> None:
    made = LAYOUTS[name]
    case = world.case(made)
    plan = case.plan("noop")[1]
    assert world.open(case, [(plan.sets - (2 << 20), plan)], draws=draws).fault is None
    ran = world.ask(Run(0, 0xFEDCBA9876543210, case.calls, verbatim=verbatim))
    assert (ran.fault, ran.inputs) == (None, ())
    last = bench(world).slots.last
    assert last is not None
    pattern = last.contents.pattern
    for index in range(case.calls if made.set_bytes else 0):
        found = np.frombuffer(world.device.read(plan.sets + index * made.set_bytes, made.set_bytes), np.uint8)
        wanted = contents(made, world.bank, index, 0xFEDCBA9876543210, (pattern, verbatim))
        assert np.array_equal(found, wanted), np.flatnonzero(found != wanted)[:8]


def test_sets_differ_and_mix_two_draws_a_row() -> None:
    made, bank = layout(), np.arange(5, dtype=np.uint8)[:, None].repeat(4096, 1)
    sets = [contents(made, bank, i, nonce, (PATTERN, False)) for i in range(20) for nonce in (1, 2)]
    assert len({s.tobytes() for s in sets}) == 40
    rows = [set(s[r * 256 : (r + 1) * 256].tolist()) for s in sets for r in range(4)]
    assert max(len(r) for r in rows) == 2
    assert sum(len(r) == 2 for r in rows) > 150
    assert {v for r in rows for v in r} == {0, 1, 2, 3, 4}
    assert np.mean([s[:1024].reshape(-1, 16)[:, 0] != s[1536:2560].reshape(-1, 16)[:, 0] for s in sets]) > 0.5


# --------------------------------------------------------------------------------------------- results


class Unit:
    """One kernel at a time on memory of its own: `calls` calls of results that lie `step` bytes apart, `shift` bytes from 16."""

    def __init__(self, world: World, results: Sequence[tables.Result], calls: int = 3, shift: int = 0) -> None:
        self.world, self.results, self.calls, self.kernels = world, tuple(results), calls, world.server.kernels
        self.step = 16 * (sum(r.bytes for r in results) // 16 + 2 * len(results) + 2)
        self.stack = ExitStack()
        sizes = {"out": calls * self.step + 64, "kept": calls * self.step, "counts": 4096, "odd": 4096, "addresses": 4096, "results": 4096}
        self.at = Private(world.device, sizes, Random(1), self.stack).at
        self.at["out"] += shift
        places = [self.at["out"] + c * self.step + r.place for c in range(calls) for r in results]
        world.device.write(self.at["addresses"], np.array(places, np.uint64).tobytes())
        world.device.write(self.at["results"], tables.packed(self.results))

    def run(self, name: str, *more: object) -> None:
        grid = (2, len(self.results), self.calls)
        arguments = [POINTER(self.at["addresses"]), POINTER(self.at["results"]), *more]
        self.kernels.launch(name, arguments, grid).go()
        self.world.device.synchronise()

    def write(self, where: str, data: np.ndarray) -> None:
        """Rows of bytes, one a call."""
        for call, row in enumerate(data):
            self.world.device.write(self.at[where] + call * self.step, row.tobytes())

    def read(self, where: str, size: int) -> np.ndarray:
        rows = [self.world.device.read(self.at[where] + call * self.step, size) for call in range(self.calls)]
        return np.array([np.frombuffer(row, np.uint8) for row in rows])

    def counts(self, where: str, n: int) -> list[int]:
        return np.frombuffer(self.world.device.read(self.at[where], 4 * n), np.uint32).tolist()


def result(size: int, *, place: int = 0, columns: int = 1, kind: str = "", fresh: int = 1, rms: float = 0.0) -> tables.Result:
    number = tables.KINDS.index(kind) if kind else tables.EXACT
    return tables.Result(size, place, columns, rms, 10 * rms, number, fresh)


@pytest.mark.parametrize("shift", [0, 2, 4])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8, 15, 16, 17, 19, 31, 32, 33, 100, 4096, 4099])
def test_poison_is_written_exactly_where_a_result_lies(world: World, size: int, shift: int) -> None:
    unit = Unit(world, [result(size)], shift=shift)
    unit.run("poison", U32(0), U32(PATTERN))
    wanted = np.concatenate([poison(PATTERN, size), np.zeros(16, np.uint8)])
    assert np.array_equal(unit.read("out", size + 16), np.tile(wanted, (3, 1)))


def test_what_is_no_fresh_result_is_not_poisoned(world: World) -> None:
    unit = Unit(world, [result(64, fresh=0), result(64, place=64)])
    unit.run("poison", U32(0), U32(PATTERN))
    assert np.array_equal(unit.read("out", 128), np.tile(np.concatenate([np.zeros(64, np.uint8), poison(PATTERN, 64)]), (3, 1)))


@pytest.mark.parametrize("shift", [0, 2])
@pytest.mark.parametrize("size", [1, 3, 4, 6, 16, 17, 18, 19, 20, 40, 4096])
def test_unwritten_and_touched_granules_are_counted(world: World, size: int, shift: int) -> None:
    unit = Unit(world, [result(size)], shift=shift)
    granules = -(-size // 16)
    rows = np.tile(poison(PATTERN, size), (3, 1))
    rows[1] ^= 0xFF
    rows[2, -1] ^= 0xFF  # only the last byte was written
    unit.write("out", rows)
    unit.run("untouched", U32(0), U32(PATTERN), U32(1), POINTER(unit.at["counts"]))
    assert unit.counts("counts", 3) == ([granules, 0, granules - 1] if size >= 4 else [0, 0, 0])
    unit.run("untouched", U32(0), U32(PATTERN), U32(0), POINTER(unit.at["odd"]))
    assert unit.counts("odd", 3) == [0, granules, 1]


def test_a_call_alone_is_counted_at_its_own_place(world: World) -> None:
    unit = Unit(world, [result(64)])
    unit.run("poison", U32(0), U32(PATTERN))
    unit.calls = 1
    unit.run("untouched", U32(2), U32(PATTERN), U32(1), POINTER(unit.at["counts"]))
    assert unit.counts("counts", 3) == [0, 0, 4]


@pytest.mark.parametrize("shift", [0, 1])
def test_results_are_kept_and_differences_found_byte_by_byte(world: World, shift: int) -> None:
    sizes = (33, 16, 5)
    places = (0, 48, 64)
    unit = Unit(world, [result(s, place=p) for s, p in zip(sizes, places, strict=True)], shift=shift)
    data = np.random.default_rng(0).integers(0, 256, (3, 69), np.uint8)
    unit.write("out", data)
    unit.run("keep", U32(0), POINTER(unit.at["kept"]), U64(unit.step))
    kept = unit.read("kept", 69)
    for size, place in zip(sizes, places, strict=True):
        assert np.array_equal(kept[:, place : place + size], data[:, place : place + size])
    data[1, 32] += 1  # last byte of the first result
    data[2, 64] += 1
    data[2, 40] += 1  # between results
    unit.write("out", data)
    unit.run("differ", POINTER(unit.at["kept"]), U64(unit.step), POINTER(unit.at["counts"]))
    assert unit.counts("counts", 9) == [0, 0, 0, 1, 0, 0, 0, 0, 1]


# --------------------------------------------------------------------------------------------- rows with a tolerance


def small_float(codes: np.ndarray, exponents: int, mantissas: int, infinities: bool) -> np.ndarray:
    """Values of small floats, from the definition of their formats."""
    codes = codes.astype(np.int64)
    m, e = codes & (1 << mantissas) - 1, (codes >> mantissas) & (1 << exponents) - 1
    bias, top = (1 << exponents - 1) - 1, (1 << exponents) - 1
    value = np.where(e > 0, (1 + m / 2.0**mantissas) * 2.0 ** (e - bias), m / 2.0**mantissas * 2.0 ** (1 - bias))
    if infinities:
        value = np.where(e == top, np.where(m > 0, np.nan, np.inf), value)
    else:
        value = np.where((e == top) & (m == (1 << mantissas) - 1), np.nan, value)
    return np.where(codes >> exponents + mantissas & 1, -value, value)


def values(data: np.ndarray, kind: str) -> np.ndarray:
    """(calls, bytes) as float64."""
    if kind in ("float64", "float32", "float16", "int8", "uint8"):
        return data.view(kind).astype(np.float64)
    if kind == "bfloat16":
        return (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return small_float(data, *{"float8_e4m3fn": (4, 3, False), "float8_e5m2": (5, 2, True)}[kind])


def expected_odd(a: np.ndarray, b: np.ndarray, columns: int, rms: float) -> bool:
    """Whether some row of one call is beyond the tolerance."""
    for at in range(0, len(a), columns):
        x, y = a[at : at + columns], b[at : at + columns]
        both = np.isnan(x) & np.isnan(y)
        x, y = x[~both], y[~both]
        equal = x == y
        if not (np.isfinite(x) | equal).all() or not (np.isfinite(y) | equal).all():
            return True
        finite = np.isfinite(x)
        off = np.subtract(x, y, out=np.zeros_like(x), where=~equal)
        n = min(columns, len(a) - at)
        size = np.sqrt(min(np.sum(x[finite] ** 2), np.sum(y[finite] ** 2)) / n)
        if np.sqrt(np.sum(off**2) / n) > rms * size or np.abs(off).max(initial=0) > 10 * rms * size:
            return True
    return False


SIZES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}


@pytest.mark.parametrize("kind", SIZES)
def test_rows_within_and_beyond_the_tolerance(world: World, kind: str) -> None:
    """Differences of many sizes: the same calls are odd here and in NumPy."""
    calls, columns, lines, rms = 40, 24, 3, {1: 0.3, 2: 0.02}.get(SIZES[kind], 1e-3)
    rng = np.random.default_rng(5)
    size = columns * lines * SIZES[kind]
    kept = rng.integers(0, 256, (calls, size), np.uint8)
    if SIZES[kind] > 1:
        floats = rng.standard_normal((calls, columns * lines)).astype("float64" if kind == "float64" else "float32")
        kept = floats.astype(kind).view(np.uint8) if kind != "bfloat16" else (floats.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    out = kept.copy().reshape(calls, -1, SIZES[kind])
    for call in range(calls):
        for _ in range(call % 4):  # a byte of some elements: anything from the last bit to the exponent
            out[call, rng.integers(columns * lines), rng.integers(SIZES[kind])] ^= 1 << rng.integers(8)
    out = out.reshape(calls, size)
    unit = Unit(world, [result(size, columns=columns, kind=kind, rms=rms)], calls=calls)
    assert compared(unit, out, kept) == [
        expected_odd(x, y, columns, rms) for x, y in zip(values(out, kind), values(kept, kind), strict=True)
    ]


def compared(unit: Unit, out: np.ndarray, kept: np.ndarray) -> list[bool]:
    unit.write("out", out)
    unit.write("kept", kept)
    n = unit.calls * len(unit.results)
    unit.run("differ", POINTER(unit.at["kept"]), U64(unit.step), POINTER(unit.at["counts"]))
    unit.run("rows", POINTER(unit.at["kept"]), U64(unit.step), POINTER(unit.at["counts"]), POINTER(unit.at["odd"]))
    differing = (out != kept).reshape(unit.calls, -1).any(axis=1)
    assert [c > 0 for c in unit.counts("counts", n)] == differing.tolist() or len(unit.results) > 1
    return [c > 0 for c in unit.counts("odd", unit.calls)]


def test_every_code_of_the_small_floats_is_read_right(world: World) -> None:
    """A row of one code against a row whose only difference is that code's neighbour: the tolerance lies just over and just under."""
    for kind in ("float8_e4m3fn", "float8_e5m2", "float16", "bfloat16"):
        item = SIZES[kind]
        codes = np.arange(256, dtype=np.uint8) if item == 1 else np.arange(0, 65536, 251, dtype=np.uint16)
        one, other = codes, codes + codes.dtype.type(1)
        a, b = (values(c.view(np.uint8), kind) for c in (one, other))
        with np.errstate(all="ignore"):
            ratio = np.abs(a - b) / np.minimum(np.abs(a), np.abs(b))
        good = np.isfinite(ratio) & (ratio > 0)
        one, other, ratio = one[good], other[good], ratio[good]
        for factor, odd in ((1 + 1e-9, False), (1 - 1e-9, True)):
            rows = [result(item, place=0, columns=1, kind=kind, rms=float(r) * factor) for r in ratio[:: max(1, len(ratio) // 60)]]
            for row, x, y in list(zip(rows, one[:: max(1, len(ratio) // 60)], other[:: max(1, len(ratio) // 60)], strict=True)):
                unit = Unit(world, [row], calls=1)
                pair = [np.array([[c]], codes.dtype).view(np.uint8) for c in (x, y)]
                assert compared(unit, *pair) == [odd], (kind, int(x), int(y))
                unit.stack.close()


@pytest.mark.parametrize(
    ("a", "b", "odd"),
    [
        ([1.0, np.inf, 2.0], [1.0, np.inf, 2.0001], False),
        ([1.0, np.inf, 2.0], [1.0, np.inf, 3.0], True),  # an infinity of both makes no row lenient
        ([1.0, np.inf, 2.0], [1.0, -np.inf, 2.0], True),
        ([1.0, np.nan, 2.0], [1.0, 5.0, 2.0], True),
        ([1.0, 5.0, 2.0], [1.0, np.nan, 2.0], True),
        ([1e200, 1.0, 2.0], [1e200, 1.0, 3.0], True),  # squares overflow
        ([0.0, 0.0, 0.0], [0.0, -0.0, 0.0], False),
        ([0.0, 0.0, 0.0], [0.0, 1e-30, 0.0], True),
        ([1e9, 1.0, 1.0], [1.0, 1.0, 1.0], True),  # measured by the smaller side
    ],
)
def test_values_that_are_not_ordinary(world: World, a: list[float], b: list[float], odd: bool) -> None:
    unit = Unit(world, [result(24, columns=3, kind="float64", rms=1e-3)], calls=1)
    assert compared(unit, np.array([a]).view(np.uint8), np.array([b]).view(np.uint8)) == [odd]


def test_two_nans_of_other_bits_are_alike(world: World) -> None:
    unit = Unit(world, [result(8, columns=2, kind="float32", rms=1e-3)], calls=1)
    pair = [np.array([[0x7FC00001, 0x3F800000]], np.uint32), np.array([[0xFFC12345, 0x3F800000]], np.uint32)]
    assert compared(unit, *(p.view(np.uint8) for p in pair)) == [False]


def test_exact_results_and_small_integers(world: World) -> None:
    data = np.full((1, 32), 10, np.uint8)
    near, far = data.copy(), data.copy()
    near[0, 3], far[0, 3] = 11, 12
    for kind, rms, wanted in (
        ("uint8", 0.0, (True, True)),
        ("uint8", 0.1, (False, True)),
        ("int8", 0.1, (False, True)),
        ("", 0.1, (True, True)),
    ):
        found = tuple(compared(Unit(world, [result(32, columns=8, kind=kind, rms=rms)], calls=1), out, data)[0] for out in (near, far))
        assert found == wanted, kind


def test_signs_of_small_integers(world: World) -> None:
    unit = Unit(world, [result(2, columns=2, kind="int8", rms=0.1)], calls=1)
    assert compared(unit, np.array([[0xFF, 5]], np.uint8), np.array([[0, 5]], np.uint8)) == [False]  # -1 and 0


def test_a_long_row_is_compared_in_pieces(world: World) -> None:
    columns = 65_536 + 1000
    data = np.full((1, 2 * columns), 1000.0, np.float32)
    data[0, -500:] = 1.0  # within the second piece of the second row
    out = data.copy()
    out[0, -1] += 0.5  # much for its surroundings' worst element only if the large ones are not counted
    unit = Unit(world, [result(data.nbytes, columns=columns, kind="float32", rms=1e-3)], calls=1)
    assert compared(unit, out.view(np.uint8), data.view(np.uint8)) == [False]
    out[0, -1] += 100
    unit = Unit(world, [result(data.nbytes, columns=columns, kind="float32", rms=1e-3)], calls=1)
    assert compared(unit, out.view(np.uint8), data.view(np.uint8)) == [True]


def test_only_calls_that_differ_are_odd_and_results_are_told_apart(world: World) -> None:
    rows = [result(32, columns=8, kind="float32", rms=1e-3), result(16, place=32)]
    unit = Unit(world, rows, calls=3)
    kept = np.ones((3, 12), np.float32)
    out = kept.copy()
    out[1, 0] += 1e-4  # within
    out[2, 9] += 1e-4  # exact result
    assert compared(unit, out.view(np.uint8), kept.view(np.uint8)) == [False, False, True]
    assert [c > 0 for c in unit.counts("counts", 6)] == [False, False, True, False, False, True]


# --------------------------------------------------------------------------------------------- the rest


def test_blocks_are_restored_byte_by_byte(world: World) -> None:
    with ExitStack() as stack:
        at = Private(world.device, {"to": 8192, "table": 4096, "store": 8192}, Random(1), stack).at
        sizes = (1, 16, 33, 2000)
        data = np.random.default_rng(2).integers(1, 256, 8192, np.uint8)
        rows = [tables.Block(at["to"] + 2048 * i + i, size, 2048 * i) for i, size in enumerate(sizes)]
        world.device.write(at["table"], tables.packed(rows))
        world.device.write(at["store"], data.tobytes())
        world.server.kernels.launch("restore", [POINTER(at["table"]), U32(4), POINTER(at["store"])], (2, 3, 1)).go()
        world.device.synchronise()
        found = np.frombuffer(world.device.read(at["to"], 8192), np.uint8)
        wanted = np.zeros(8192, np.uint8)
        for i, size in enumerate(sizes):
            wanted[2048 * i + i : 2048 * i + i + size] = data[2048 * i : 2048 * i + size]
        assert np.array_equal(found, wanted)


def test_plain_kernels(world: World) -> None:
    kernels, device = world.server.kernels, world.device
    with ExitStack() as stack:
        at = Private(device, {"a": 4096, "b": 4096, "sink": 8, "zeros": 4096}, Random(1), stack).at
        kernels.launch("fill", [POINTER(at["b"]), U64(256), U64(7)], (2, 1, 1)).go()
        kernels.launch("copy", [POINTER(at["a"]), POINTER(at["b"]), U64(100)], (2, 1, 1)).go()
        for launch in (kernels.wash(at["a"], 4096, at["sink"]), kernels.scrub(at["zeros"], at["sink"]), kernels.sentinel(at["sink"])):
            launch.go()
        device.synchronise()
        found = np.frombuffer(device.read(at["a"], 4096), np.uint64)
        assert found.tolist() == [7] * 200 + [0] * 312
        assert device.read(at["sink"], 8) == bytes(8)
