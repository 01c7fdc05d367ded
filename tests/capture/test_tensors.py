"""Arguments as tensors over a set, and what an entry may return."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from keepfast.capture import tensors
from keepfast.capture.refusals import Refused
from keepfast.capture.tensors import Returned, apart, argument
from keepfast.gpu.layout import Tensor
from keepfast.gpu.plan import Segment
from tests.capture.kit import laid

torch = pytest.importorskip("torch")

SIZE = 4096


class Memory:
    """Host memory with an address."""

    def __init__(self) -> None:
        self.buffer = (ctypes.c_uint8 * SIZE)(*(i % 251 for i in range(SIZE)))
        self.at = ctypes.addressof(self.buffer)

    def __call__(self, address: int, size: int) -> Any:
        assert self.at <= address
        assert address + size <= self.at + SIZE, "outside the set"
        return torch.frombuffer((ctypes.c_uint8 * size).from_address(address), dtype=torch.uint8)


@pytest.mark.parametrize(
    ("name", "kind", "size"),
    [
        ("float32", torch.float32, 4),
        ("bfloat16", torch.bfloat16, 2),
        ("float16", torch.float16, 2),
        ("float64", torch.float64, 8),
        ("float8_e4m3fn", torch.float8_e4m3fn, 1),
        ("float8_e5m2", torch.float8_e5m2, 1),
        ("float8_e8m0", torch.float8_e8m0fnu, 1),
        ("float4_e2m1", torch.uint8, 1),
        ("int64", torch.int64, 8),
        ("uint16", torch.uint16, 2),
        ("bool", torch.bool, 1),
    ],
)
def test_every_type_is_a_view_of_the_set(name: str, kind: Any, size: int) -> None:
    memory = Memory()
    made = argument(memory, memory.at, Tensor(name, (3, 4), (4, 1), 512, 512, 12 * size))
    assert (made.dtype, tuple(made.shape), made.data_ptr()) == (kind, (3, 4), memory.at + 512)
    assert made.untyped_storage().nbytes() == 12 * size, "a storage of its own"
    raw = made.contiguous().view(torch.uint8).reshape(-1) if kind != torch.bool else made.reshape(-1).view(torch.uint8)
    assert bytes(raw.tolist()) == bytes(memory.buffer)[512 : 512 + 12 * size]


def test_strides_and_starts_are_the_layouts() -> None:
    memory = Memory()
    place = Tensor("int32", (4, 3), (1, 5), 1024, 1024 + 8, 4 * 20)
    made = argument(memory, memory.at, place)
    assert made.stride() == (1, 5)
    assert made.data_ptr() == memory.at + 1032
    made[1, 2] = 77
    assert ctypes.c_int32.from_address(memory.at + 1032 + 4 * 11).value == 77
    every = argument(memory, memory.at, Tensor("float32", (8, 4), (0, 1), 0, 0, 16))
    assert every.shape == (8, 4)
    assert every.stride() == (0, 1), "expanded"


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1, 1)])
def test_shapes_at_the_edge(shape: tuple[int, ...]) -> None:
    memory = Memory()
    count = 1
    for n in shape:
        count *= n
    made = argument(memory, memory.at, Tensor("float32", shape, tuple(1 for _ in shape), 0, 0, 4 * count))
    assert tuple(made.shape) == shape


def test_a_type_this_torch_lacks_is_refused() -> None:
    with pytest.raises(Refused, match="has no float3"):
        tensors.dtype("float3")


LAYOUT = laid((("x", "float32", (4, 8), False), ("y", "float32", (8,), True)), (("out", "bfloat16", (4, 8)), ("scale", "float32", (4,))))
SETS = (1 << 40, (1 << 40) + 4096)


@pytest.fixture
def written() -> Any:
    return torch.zeros(8)


def returned(*, holds: bool = True, sets: tuple[int, int] = SETS) -> Returned:
    return Returned(LAYOUT, torch.device("cpu"), lambda _: holds, sets)


def good() -> tuple[Any, Any]:
    return torch.zeros(4, 8, dtype=torch.bfloat16), torch.zeros(4)


def test_outputs_are_placed_in_order(written: Any) -> None:
    out, scale = good()
    wanted = (Segment(out.data_ptr(), 64), Segment(scale.data_ptr(), 16))
    for value in ((out, scale), [out, scale], (written, out, scale), (out, written, scale), (written.view(8), out, scale)):
        assert returned().outputs(value, [written]) == wanted


class Sub(torch.Tensor):
    pass


def test_what_is_not_as_the_schema_says_is_refused_with_expected_and_got(written: Any) -> None:
    out, scale = good()
    cases = (
        (None, "expected `out`, `scale`, got nothing"),
        (out, "expected `out`, `scale`, got torch.Tensor"),
        ((out, scale, scale), "got torch.Tensor, torch.Tensor, torch.Tensor"),
        ((out, 3.0), r"`scale`: expected a torch.Tensor, got float"),
        ((out, None), r"`scale`: expected a torch.Tensor, got None"),
        ((out, torch.nn.Parameter(scale)), r"`scale`: expected a torch.Tensor, got torch.nn.parameter.Parameter"),
        ((out, scale.as_subclass(Sub)), r"`scale`: expected a torch.Tensor, got tests.capture.test_tensors.Sub"),
        ((out.float(), scale), r"`out`: expected a contiguous bfloat16 tensor of shape \(4, 8\) on cpu, got a float32 .*: another type"),
        ((out.reshape(8, 4), scale), r"got a bfloat16 tensor of shape \(8, 4\) with strides \(4, 1\) on cpu: another shape"),
        ((torch.zeros(8, 4, dtype=torch.bfloat16).t(), scale), r"with strides \(1, 4\) on cpu: it is not contiguous"),
        ((out.to("meta"), scale), "on meta: another device"),
        ((out.to_sparse(), scale), "it is sparse"),
        ({"out": out}, "expected `out`, `scale`, got dict"),
    )
    for value, words in cases:
        with pytest.raises(Refused, match=words) as caught:
            returned().outputs(value, [written])
        assert caught.value.error == "result"


def test_memory_of_an_output_is_its_own_and_the_allocators(written: Any) -> None:
    out, scale = good()
    with pytest.raises(Refused, match="`out`: expected memory of its own, got memory of an argument"):
        returned(sets=(out.data_ptr() - 64, out.data_ptr() + 64)).outputs((out, scale), [])
    with pytest.raises(Refused, match="`out`: expected memory of torch's allocator, got 0x"):
        returned(holds=False).outputs((out, scale), [])


def test_purely_in_place_entries_may_return_what_they_wrote(written: Any) -> None:
    layout = laid((("y", "float32", (8,), True), ("z", "float32", (8,), True)), ())
    other, checks = torch.ones(8), Returned(laid((("y", "float32", (8,), True),), ()), torch.device("cpu"), lambda _: True, SETS)
    both = Returned(layout, torch.device("cpu"), lambda _: True, SETS)
    assert checks.outputs(None, [written]) == ()
    assert checks.outputs(written, [written]) == ()
    assert both.outputs((written, other), [written, other]) == ()
    assert both.outputs((), [written, other]) == ()
    with pytest.raises(Refused, match="expected nothing but written arguments, got torch.Tensor"):
        checks.outputs(other, [written])


def test_sizes_of_one_and_none_are_contiguous_however_they_are_strided() -> None:
    layout = laid((), (("a", "float32", (1, 8)), ("b", "float32", (0, 4))))
    checks = Returned(layout, torch.device("cpu"), lambda _: True, SETS)
    a = torch.zeros(8).as_strided((1, 8), (1, 1))
    assert checks.outputs((a, torch.zeros(0, 4)), []) == (Segment(a.data_ptr(), 32), Segment(0, 0))


def test_packed_float4_may_be_bytes_or_torchs_own_type() -> None:
    checks = Returned(laid((), (("q", "float4_e2m1", (4, 4)),)), torch.device("cpu"), lambda _: True, SETS)
    value = torch.zeros(4, 4, dtype=torch.uint8)
    assert checks.outputs(value, [])[0].size == 16
    assert checks.outputs(value.view(torch.float4_e2m1fn_x2), [])[0].size == 16


def test_results_of_all_calls_are_apart() -> None:
    layout = laid((), (("a", "float32", (8,)), ("b", "float32", (8,))))
    apart([(Segment(0, 32), Segment(64, 32)), (Segment(32, 32), Segment(0, 0))], layout)
    with pytest.raises(Refused, match=r"result: `a` of call 2 lies in the memory of `b` of call 0: expected memory of its own"):
        apart([(Segment(0, 32), Segment(64, 32)), (Segment(512, 32), Segment(1024, 32)), (Segment(80, 32), Segment(2048, 32))], layout)
