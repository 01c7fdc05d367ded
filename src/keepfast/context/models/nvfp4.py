"""NVFP4: 4-bit floats in blocks of 16 with an e4m3 scale each and one float32 for the tensor; packing; scale layout. NumPy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Bytes = NDArray[np.uint8]
VALUES = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])  # of codes 0 ... 7; bit 3 is the sign
MIDDLES = (VALUES[1:] + VALUES[:-1]) / 2


def e4m3(x: Array) -> Array:
    """The nearest e4m3 value (ties to even), at most 448; subnormals in steps of 2^-9."""
    size = np.minimum(np.abs(x), 448.0)
    step = 2.0 ** (np.floor(np.log2(np.maximum(size, 2.0**-6))) - 3)
    found: Array = np.copysign(np.minimum(np.round(size / step) * step, 448.0), x)
    return found


def e2m1(x: Array) -> Bytes:
    """Codes of the nearest values, beyond 6 as 6. Half way between two: the even code."""
    size = np.abs(x)
    low, high = np.searchsorted(MIDDLES, size, side="left"), np.searchsorted(MIDDLES, size, side="right")
    codes: Bytes = (np.where(low % 2 == 0, low, high) + 8 * np.signbit(x)).astype(np.uint8)
    return codes


def quantise(x: Array) -> tuple[Bytes, Array, float]:
    """x [R, K], K whole blocks of 16 -> codes [R, K], scales [R, K / 16], and g = 448 * 6 / amax of the tensor."""
    g = float(448 * 6 / np.abs(x).max())
    blocks = x.reshape(len(x), -1, 16)
    scales = e4m3(g * np.abs(blocks).max(axis=2) / 6)
    inverse = np.divide(g, scales, out=np.zeros_like(scales), where=scales > 0)
    return e2m1(blocks * inverse[:, :, None]).reshape(x.shape), scales, g


def dequantise(codes: Bytes, scales: Array, g: float) -> Array:
    """codes * scale / g. Checkpoints that keep 1 / g (`weight_scale_2`) are multiplied by it instead."""
    signs = np.where(codes & 8, -1.0, 1.0)
    values: Array = signs * VALUES[codes & 7] * np.repeat(scales, 16, axis=1) / g
    return values


def pack(codes: Bytes) -> Bytes:
    """[R, K] -> [R, K / 2]: even places in the low four bits, odd ones in the high."""
    pairs: Bytes = codes[:, 0::2] | codes[:, 1::2] << np.uint8(4)
    return pairs


def scale_place(row: int, block: int, blocks: int) -> int:
    """Byte of the scale of `row` and `block` of `blocks` a row, as tcgen05 and sm_120 want it: tiles of 128 rows x 4 scales."""
    tile = row // 128 * -(-blocks // 4) + block // 4
    return tile * 512 + row % 32 * 16 + row % 128 // 32 * 4 + block % 4
