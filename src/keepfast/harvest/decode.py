"""Raw elements as float64, for element types that NumPy has and has not. Must not know files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepfast import dtypes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TORCH_NAMES = {"float8_e8m0fnu": "float8_e8m0", "float4_e2m1fn_x2": "float4_e2m1"}  # where torch has another name


def known(name: str) -> dtypes.DType | None:
    """The element type of this name, torch's or ours; None where keepfast has none (complex, quantised)."""
    ours = TORCH_NAMES.get(name, name)
    return next((d for d in dtypes.TABLE if d.name == ours), None)


def numbers(data: bytes, kind: dtypes.DType) -> NDArray[np.float64]:
    """Every element, one dimension. Whole numbers beyond 2^53 are rounded."""
    import numpy as np

    if kind.numpy is not None:
        return np.frombuffer(data, np.dtype(kind.numpy)).astype(np.float64)
    if kind.name == "bfloat16":
        return (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    codes = np.frombuffer(data, np.uint8)
    if kind.bits == 4:
        codes = np.stack([codes & 15, codes >> 4], axis=-1).reshape(-1)
    return np.array([_small(kind.name, code) for code in range(1 << kind.bits)])[codes]


_LAYOUT = {"float8_e4m3fn": (4, 3), "float8_e5m2": (5, 2), "float4_e2m1": (2, 1)}  # bits of exponent and mantissa


def _small(name: str, code: int) -> float:
    """The number that a code of at most 8 bits stands for."""
    if name == "float8_e8m0":
        return float("nan") if code == 255 else 2.0 ** (code - 127)
    wide, narrow = _LAYOUT[name]
    sign = -1.0 if code >> (wide + narrow) & 1 else 1.0
    exponent, mantissa = code >> narrow & (1 << wide) - 1, code & (1 << narrow) - 1
    if name == "float8_e4m3fn" and (exponent, mantissa) == (15, 7):
        return float("nan")
    if name == "float8_e5m2" and exponent == 31:
        return sign * float("inf") if mantissa == 0 else float("nan")
    bias = (1 << wide - 1) - 1
    if exponent == 0:
        return float(sign * mantissa * 2.0 ** (1 - bias - narrow))
    return float(sign * (1 + mantissa / (1 << narrow)) * 2.0 ** (exponent - bias))
