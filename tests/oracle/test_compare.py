"""The comparison in torch against the CPU judge's in NumPy: same verdicts, same sentences, same budgets; and types NumPy has not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from keepfast.judge import compare as cpu  # noqa: E402
from keepfast.model import Case, Tolerance  # noqa: E402
from keepfast.oracle import codes, compare, tensors  # noqa: E402
from keepfast.oracle.compare import Limits  # noqa: E402
from tests.judge.tasks import softmax_task  # noqa: E402

Array = np.ndarray
SHAPES = [(), (1,), (7,), (64, 64), (3, 5, 33), (2, 1, 3, 8), (40, 1), (0, 4), (5, 0)]
WRONG: dict[str, Callable[[Array, np.random.Generator], Array]] = {
    "nothing": lambda a, rng: a,
    "one ulp": lambda a, rng: np.nextafter(a, np.asarray(9, a.dtype)),
    "noise": lambda a, rng: (a * (1 + 10.0 ** rng.uniform(-8, -1) * rng.standard_normal(a.shape))).astype(a.dtype),
    "scaled": lambda a, rng: (a * (1 + 10.0 ** rng.uniform(-7, -1))).astype(a.dtype),
    "zeros": lambda a, rng: np.zeros_like(a),
    "element": lambda a, rng: _put(a, rng, 10.0 ** rng.uniform(-6, 0)),
    "nan": lambda a, rng: _put(a, rng, np.nan),
    "inf": lambda a, rng: _put(a, rng, np.inf),
    "tail": lambda a, rng: _zero(a, -1),
    "rows": lambda a, rng: _zero(a, 0),
}


def _put(a: Array, rng: np.random.Generator, change: float) -> Array:
    got = a.copy()
    if got.size:
        got.reshape(-1)[rng.integers(got.size)] += np.asarray(change, got.dtype)
    return got


def _zero(a: Array, axis: int) -> Array:
    got = a.copy()
    if got.ndim:
        np.moveaxis(got, axis, 0)[-max(1, got.shape[axis] // 8) :] = 0
    return got


def held(got: Array, working: Array, exact: Array, limits: tuple[float, float]) -> None:
    """Both judges say the same."""
    theirs = cpu.judge("y", got, working, exact, limits)
    ours = compare.judge("y", *(torch.from_numpy(np.array(a)) for a in (got, working, exact)), Limits(*limits))
    if isinstance(theirs, cpu.Mismatch):
        assert ours.wrong == theirs.detail
    else:
        assert ours.wrong == ""
        if working.dtype.kind == "f":
            assert (ours.rms, ours.worst) == pytest.approx((theirs.rms, theirs.worst), rel=1e-9)
            assert ours.found_rms <= ours.rms
            assert ours.found_worst <= ours.worst


@pytest.mark.parametrize("wrong", list(WRONG))
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.filterwarnings("ignore")
def test_floats_are_judged_as_on_the_cpu(dtype: type, wrong: str) -> None:
    rng = np.random.default_rng([np.dtype(dtype).itemsize, len(wrong)])
    for shape in SHAPES:
        for length, scale in ((1.0, 1.0), (float(max(shape, default=1)), 1.0), (4096.0, 1.0), (64.0, 3.0)):
            exact = np.asarray(rng.standard_normal(shape) * np.exp(rng.normal(0, 2, (*shape[:-1], 1) if shape else ())))
            if rng.random() < 0.2 and shape:
                exact.reshape(-1)[: max(shape[-1], 1)] = 0.0  # a slice of nothing
            working = np.asarray(exact * (1 + 3e-7 * rng.standard_normal(shape))).astype(dtype)
            held(np.asarray(WRONG[wrong](working, rng)), working, exact, (length, scale))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool"])
def test_whole_numbers_are_judged_as_on_the_cpu(dtype: str) -> None:
    rng = np.random.default_rng(7)
    low, high = (0, 2) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    for shape in ((1,), (30,), (40, 50), (4, 5, 60)):
        wanted = rng.integers(low, high, shape, endpoint=dtype != "bool", dtype=dtype if dtype != "bool" else np.uint8).astype(dtype)
        held(wanted.copy(), wanted, wanted, (1.0, 1.0))
        for share in (0.005, 0.01, 0.03):
            places = rng.random(shape) < share
            held(wanted ^ places.astype(dtype), wanted, wanted, (1.0, 1.0))  # neighbours, at most one apart
        far = wanted.copy()
        far.reshape(-1)[-1] = ~far.reshape(-1)[-1]
        held(far, wanted, wanted, (1.0, 1.0))


def test_large_results_are_judged_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    exact = rng.standard_normal((61, 50))
    working = exact.astype(np.float32)
    monkeypatch.setattr(tensors, "BLOCK", 400)
    for wrong in ("nothing", "noise", "element", "tail", "rows", "nan"):
        held(WRONG[wrong](working, rng), working, exact, (50.0, 1.0))


def test_results_of_any_strides() -> None:
    exact = torch.randn(6, 5, dtype=torch.float64).t()
    working = exact.float()
    assert compare.judge("y", working.t().contiguous().t(), working.contiguous(), exact, Limits(5)).wrong == ""
    got = working.clone()
    got[4, 5] += 1
    assert compare.judge("y", got, working, exact, Limits(5)).wrong.startswith("y[4, 5]: got ")


# --------------------------------------------------------------------------------------------- what NumPy cannot hold, or says otherwise


def test_bfloat16_has_its_own_eps() -> None:
    exact = torch.randn(16, 64, dtype=torch.float64)
    working = exact.bfloat16()
    found = compare.judge("y", working, working, exact, Limits(64))
    assert (found.wrong, found.rms) == ("", 2 * 2**-7)
    assert 20 * 2**-7 < found.worst < 30 * 2**-7
    assert 0 < found.found_rms < 2**-8
    assert compare.judge("y", (exact * 1.05).bfloat16(), working, exact, Limits(64)).wrong
    assert compare.judge("y", (exact * 1.005).bfloat16(), working, exact, Limits(64)).wrong == ""


def test_long_reductions_do_not_widen_half_precision() -> None:
    exact = torch.randn(8, 65536, dtype=torch.float64)
    working = exact.bfloat16()
    assert compare.judge("y", torch.zeros_like(working), working, exact, Limits(65536)).wrong
    assert compare.judge("y", (exact * 1.05).bfloat16(), working, exact, Limits(65536)).wrong
    got = working.clone()
    got[:, 3] = 0
    assert compare.judge("y", got, working, exact, Limits(65536)).wrong


def test_what_is_not_finite_in_the_reference_excuses_nothing() -> None:
    exact = torch.tensor([[torch.inf, 1.0, 2.0], [torch.nan, 1.0, 2.0], [3.0, 1.0, 2.0]], dtype=torch.float64)
    working = exact.float()
    good = working[[0, 2]]
    assert compare.judge("y", good, good, good.double(), Limits(3)).wrong == ""
    for value in ((0, 0, 5.0), (0, 0, -torch.inf), (0, 0, torch.nan), (0, 1, 9.0), (1, 0, torch.inf)):
        got = good.clone()
        got[value[0], value[1]] = value[2]
        assert compare.judge("y", got, good, good.double(), Limits(3)).wrong, value
    assert compare.judge("y", working, working, exact, Limits(3)).wrong == "y[1, 0]: got nan, expected nan"


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_floats_of_eight_bits_are_codes(name: str) -> None:
    dtype = tensors.dtype_of(name)
    exact = torch.randn(20, 100, dtype=torch.float64)
    working = exact.to(dtype)
    nearby = tensors.bits(working.clone())
    nearby.reshape(-1)[:15] ^= 1
    for oracle in (exact, working):
        assert compare.judge("q", working.clone(), working, oracle, Limits(100)).wrong == ""
        assert compare.judge("q", nearby.view(dtype), working, oracle, Limits(100)).wrong == ""
    for wrong in (torch.zeros_like(exact), exact * 1.2, -exact, exact.roll(1, 1)):
        assert compare.judge("q", wrong.to(dtype), working, exact, Limits(100)).wrong.startswith("q[")
    found = compare.judge("q", working, working, exact, Limits(100))
    assert found.rms == pytest.approx(0.1 * tensors.eps_of(dtype))
    assert found.worst > tensors.eps_of(dtype)


def test_codes_next_to_nan_are_not_near_it() -> None:
    top = torch.full((200,), 448.0).to(torch.float8_e4m3fn)
    for code in (0x7F, 0xFF):
        got = tensors.bits(top.clone())
        got[5] = code
        assert codes.wrong("q", got.view(top.dtype), top) == "q[5]: got nan, expected 448"
    infinite = torch.full((200,), torch.inf).to(torch.float8_e5m2)
    assert codes.wrong("q", infinite.clone(), infinite) == ""
    got = tensors.bits(infinite.clone())
    got[7] -= 1
    assert codes.wrong("q", got.view(infinite.dtype), infinite) == "q[7]: got 57344, expected inf"
    signs = torch.zeros(300).to(torch.float8_e4m3fn)
    assert codes.wrong("q", (-torch.zeros(300)).to(torch.float8_e4m3fn), signs) == ""


def test_scales_of_eight_bits_and_packed_floats() -> None:
    scales = torch.full((200,), 1.0).to(tensors.dtype_of("float8_e8m0"))
    off = tensors.bits(scales.clone())
    off[0] += 1
    assert codes.wrong("s", off.view(scales.dtype), scales) == ""
    off[0] += 1
    assert codes.wrong("s", off.view(scales.dtype), scales) == "s[0]: got 4, expected 1"
    packed = torch.arange(200, dtype=torch.uint8).view(tensors.dtype_of("float4_e2m1"))
    assert codes.wrong("p", packed.clone(), packed) == ""
    assert codes.budget(packed) == (0.0, 0.0)
    off = tensors.bits(packed.clone())
    off[0x22] ^= 0x10
    assert codes.wrong("p", off.view(packed.dtype), packed) == ""
    off[0x22] ^= 0x50
    assert codes.wrong("p", off.view(packed.dtype), packed) == "p[34]: got 0x62, expected 0x22"


def test_codes_that_float64_says_are_right_as_well() -> None:
    working, exact = torch.arange(100, dtype=torch.int8), torch.arange(100, dtype=torch.int8) + 1
    assert compare.judge("q", exact.clone(), working, exact, Limits(1)).wrong == ""
    assert compare.judge("q", exact + 1, working, exact, Limits(1)).wrong == "q[0]: got 2, expected 0"


def test_truth_values_are_bytes() -> None:
    wanted = torch.tensor([False, True, True])
    assert codes.wrong("b", torch.tensor([False, False, True]), wanted) == "b[1]: got False, expected True"
    assert codes.wrong("b", torch.tensor([0, 1, 255], dtype=torch.uint8).view(torch.bool), wanted) == "b[2]: got 255, expected True"


@pytest.mark.parametrize("reduction", ["", "n", "m * n / 4", "0"])
def test_limits_are_those_of_the_cpu_judge(reduction: str) -> None:
    task = softmax_task(tolerance=Tolerance(reduction, 2.5))
    for axes in ((), (("m", 3), ("n", 900)), (("m", 300), ("n", 9))):
        case = Case("c", axes)
        if axes or not reduction:
            assert compare.limits_of(task, case) == Limits(cpu.reduction_length(task, case), 2.5)


def test_the_constants_are_those_of_the_cpu_judge() -> None:
    for name in ("FLOOR_EPS", "CAP_EPS", "OWN_ERROR", "WORST", "TINY_SLICE"):
        assert getattr(compare, name) == getattr(cpu, name)
    assert codes.OFF_BY_ONE_SHARE == cpu.OFF_BY_ONE_SHARE


def test_very_short_rows_are_judged_together() -> None:
    """The error of a single element says nothing about the precision that a result has."""
    exact = torch.randn(4096, 1, dtype=torch.float64)
    working = exact.float()
    right = (exact + 3e-7 * torch.randn_like(exact)).float()
    assert compare.judge("y", right, working, exact, Limits(4096)).wrong == ""
    assert compare.judge("y", (exact * 1.001).float(), working, exact, Limits(4096)).wrong
    assert compare.width((4096, 1)) == 4096
    assert compare.width((5, 4, 2)) == 8
    assert compare.width((7, 64)) == 64
