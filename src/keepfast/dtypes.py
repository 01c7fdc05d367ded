"""The element types of keepfast: one table for task files, frames and C.

Owns names, widths and C types. Must not know tasks, buffers or devices; NumPy is only looked at, never imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from keepfast.errors import TaskError, nearest

if TYPE_CHECKING:
    import numpy as np


class DType(Struct, frozen=True):
    """One element type. `numpy` is the NumPy name, or None where NumPy has no such type; `eps` is the gap after 1.0."""

    name: str
    bits: int
    ctype: str  # what C code gets a pointer to; 16-bit and smaller floats travel as raw bits
    numpy: str | None
    eps: float | None
    is_float: bool


def _float(name: str, bits: int, ctype: str, mantissa: int, *, numpy: bool) -> DType:
    return DType(name, bits, ctype, name if numpy else None, 2.0**-mantissa, True)


def _int(name: str, bits: int) -> DType:
    return DType(name, bits, f"{name}_t", name, None, False)


TABLE: tuple[DType, ...] = (
    _float("float64", 64, "double", 52, numpy=True),
    _float("float32", 32, "float", 23, numpy=True),
    _float("float16", 16, "uint16_t", 10, numpy=True),
    _float("bfloat16", 16, "uint16_t", 7, numpy=False),
    _float("float8_e4m3fn", 8, "uint8_t", 3, numpy=False),
    _float("float8_e5m2", 8, "uint8_t", 2, numpy=False),
    _float("float8_e8m0", 8, "uint8_t", 0, numpy=False),
    _float("float4_e2m1", 4, "uint8_t", 1, numpy=False),  # two to a byte
    *(_int(f"int{bits}", bits) for bits in (8, 16, 32, 64)),
    *(_int(f"uint{bits}", bits) for bits in (8, 16, 32, 64)),
    DType("bool", 8, "uint8_t", "bool", None, False),
)


def names() -> tuple[str, ...]:
    return tuple(d.name for d in TABLE)


def by_name(name: str) -> DType:
    """The type called `name`; TaskError names the nearest known one."""
    for dtype in TABLE:
        if dtype.name == name:
            return dtype
    raise TaskError(f"unknown dtype `{name}`.{nearest(name, names())}", next_step=f"Known: {', '.join(names())}")


def of_numpy(dtype: np.dtype) -> DType | None:
    """The type of a NumPy array, or None where keepfast has none for it (complex, text, swapped byte order)."""
    return next((d for d in TABLE if d.numpy is not None and dtype.isnative and dtype.name == d.numpy), None)
