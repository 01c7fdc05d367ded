"""Is a result right? The error budget of docs/verdict.md, on private copies and plain arrays.

Owns: slices, budgets, the sentence that names the first wrong element. Must not know processes, clocks or candidates.
The numbers are starting values, held against honest kernels and the task lint's mutants: docs/decisions/0001-error-budget.md.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from keepfast.model import Case, Task

if TYPE_CHECKING:
    import numpy as np

FLOOR_EPS = 4.0  # a budget is never below this many eps of the slice's RMS, times max(1, sqrt(L) / 8) for the RMS
CAP_EPS = 8.0  # nor above this many eps * sqrt(L)
OWN_ERROR = 2.0  # times the reference's own error at working precision
WORST = 10.0  # worst element over the budget, times max(1, sqrt(L) / 8)
COARSE_EPS = 2.0**-20  # half precision: sums are kept wider, so what a result may be off by does not grow with their length
COARSE_FLOOR = 2.0
SHORT = 8  # elements: the error of so few says nothing about the precision that a result has
TINY_SLICE = 1e-6  # an (almost) empty slice borrows this share of the RMS of the whole tensor
OFF_BY_ONE_SHARE = 0.01  # share of 8-bit codes that may differ by one


class Budget(Struct, frozen=True):
    """Error a slice may have, relative to its RMS: `rms` for the whole slice, `worst` for one element."""

    rms: float
    worst: float


class Mismatch(Struct, frozen=True):
    name: str
    index: tuple[int, ...]
    got: float
    expected: float
    detail: str


def reduction_length(task: Task, case: Case) -> float:
    """L of the budget: `[tolerance] reduction`, else the largest axis."""
    from keepfast.expr import parse

    axes = dict(case.axes)
    if task.tolerance.reduction:
        return max(1.0, float(parse(task.tolerance.reduction, list(axes)).value(axes)))
    return float(max(axes.values(), default=1))


def slices(array: np.ndarray) -> np.ndarray:
    """View or copy as (slices, elements): the last axis is a slice, together with those before it while it is very short."""
    width = array.shape[-1] if array.ndim else 1
    for size in reversed(array.shape[:-1]):
        if width >= SHORT:
            break
        width *= size
    return array.reshape(-1, max(width, 1)) if array.size else array.reshape(0, max(width, 1))


def _rms(values: np.ndarray) -> np.ndarray:
    import numpy as np

    found: np.ndarray = np.sqrt(np.mean(np.square(values), axis=1))
    return found


def sizes(exact: np.ndarray) -> np.ndarray:
    """RMS of each slice; an (almost) empty slice borrows TINY_SLICE of the whole tensor's."""
    import numpy as np

    finite = np.nan_to_num(exact, nan=0.0, posinf=0.0, neginf=0.0)  # one infinity must not excuse its whole row
    rows = _rms(finite)
    whole = math.sqrt(float(np.mean(np.square(finite)))) if exact.size else 0.0
    found: np.ndarray = np.maximum(rows, max(TINY_SLICE * whole, 1e-300))
    return found


def budgets(exact: np.ndarray, working: np.ndarray, length: float, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Per slice the relative error allowed: (RMS of the slice, worst element)."""
    import numpy as np

    eps = float(np.finfo(working.dtype).eps)
    floor, grown = (COARSE_FLOOR, 1.0) if eps > COARSE_EPS else (FLOOR_EPS, max(1.0, math.sqrt(length) / 8.0))
    reference, rounded = slices(exact), slices(working).astype(np.float64)
    with np.errstate(invalid="ignore"):
        apart = np.where(np.isinf(reference) & (rounded == reference), 0.0, rounded - reference)
    own = _rms(apart) / sizes(reference)
    base = np.clip(OWN_ERROR * own, floor * eps, max(floor, CAP_EPS * math.sqrt(length)) * eps)
    return np.maximum(base, floor * eps * grown) * scale, WORST * grown * base * scale


def judge(name: str, got: np.ndarray, working: np.ndarray, exact: np.ndarray, limits: tuple[float, float]) -> Mismatch | Budget:
    """Compare one result with the oracle. `limits` is (L, scale). Shapes and dtypes are equal by construction of the layout."""
    length, scale = limits
    if working.dtype.kind != "f":
        return _codes(name, got, working)
    import numpy as np

    if got.size == 0:
        return Budget(0.0, 0.0)
    allowed, worst = budgets(exact, working, length, scale)
    reference = slices(exact)
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(slices(got).astype(np.float64) - reference)
        error = np.where(np.isinf(reference), np.where(slices(got) == reference, 0.0, np.inf), error)
    error = np.where(np.isnan(error), np.inf, error)
    size = sizes(reference)
    worst = worst[:, None] + _rounding(working, scale) * np.abs(np.nan_to_num(reference, posinf=0.0, neginf=0.0)) / size[:, None]
    with np.errstate(over="ignore"):
        bad = ~((_rms(error) <= allowed * size) & (error <= worst * size[:, None]).all(axis=1))
    if bad.any():
        return _worst(name, got, exact, error, int(np.argmax(bad)))
    return Budget(float(allowed.max()), float(worst.max()))


def _rounding(working: np.ndarray, scale: float) -> float:
    """What the rounding of a large element may add, relative to itself: counts in half precision, whatever its row is like."""
    import numpy as np

    eps = float(np.finfo(working.dtype).eps)
    return eps * scale if eps > COARSE_EPS else 0.0


def _worst(name: str, got: np.ndarray, exact: np.ndarray, error: np.ndarray, row: int) -> Mismatch:
    import numpy as np

    column = int(np.argmax(error[row]))
    index = tuple(int(i) for i in np.unravel_index(row * error.shape[1] + column, got.shape)) if got.ndim else ()
    value, wanted = float(got[index]), float(exact[index])
    return Mismatch(name, index, value, wanted, f"{name}{list(index)}: got {value:.7g}, expected {wanted:.7g}{_pattern(error, row)}")


def _pattern(error: np.ndarray, row: int) -> str:
    """What the wrong places have in common, in a few words; empty when nothing stands out."""
    import numpy as np

    large = error >= 0.5 * np.max(error[row])
    columns = np.flatnonzero(large.any(axis=0))
    lines = np.flatnonzero(large.any(axis=1))
    height, width = error.shape
    if 0 < len(columns) <= max(1, width // 4) and columns[-1] == width - 1 and len(columns) == width - columns[0] and width > 1:
        return f" (only the last {len(columns)} column{'s' if len(columns) > 1 else ''})"
    if height > 1 and len(lines) < height and len(lines) == height - lines[0]:
        return f" (only from row {int(lines[0])} on)"
    if height > 1 and len(lines) < height:
        return f" ({len(lines)} of {height} rows)"
    return ""


def _codes(name: str, got: np.ndarray, expected: np.ndarray) -> Mismatch | Budget:
    """Integers are exact; 8-bit codes may be off by one in a capped share."""
    import numpy as np

    if got.size == 0 or np.array_equal(got, expected):
        return Budget(0.0, 0.0)
    off = _apart(got, expected)
    if expected.dtype.kind in "iu" and expected.dtype.itemsize == 1 and off.max() <= 1 and float((off > 0).mean()) <= OFF_BY_ONE_SHARE:
        return Budget(0.0, 0.0)
    index = tuple(int(i) for i in np.unravel_index(int(np.argmax(off)), got.shape)) if got.ndim else ()
    return Mismatch(
        name, index, float(got[index]), float(expected[index]), f"{name}{list(index)}: got {got[index]}, expected {expected[index]}"
    )


def _apart(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Distance of whole numbers as uint64, whatever their sign and width; of truth values 0 or 2."""
    import numpy as np

    if a.dtype.kind not in "iu":
        differ: np.ndarray = (a != b).astype(np.uint64) * np.uint64(2)
        return differ
    x, y = a.astype(np.uint64), b.astype(np.uint64)  # modulo 2^64, so that the larger minus the smaller is right
    found: np.ndarray = np.where(a > b, x - y, y - x)
    return found


def varies(first: Any, again: Any, budget: Budget) -> bool:
    """Do two launches on the same contents differ by more than rounding (atomics, split sums) can?"""
    import numpy as np

    if np.array_equal(first, again, equal_nan=first.dtype.kind == "f"):
        return False
    if first.dtype.kind != "f":
        return bool(_apart(first, again).max() > (1 if first.dtype.kind in "iu" and first.dtype.itemsize == 1 else 0))
    a, b = slices(first).astype(np.float64), slices(again).astype(np.float64)
    worst = np.abs(a - b).max(axis=1)
    return bool(np.any(~(worst <= budget.worst * sizes(a))))
