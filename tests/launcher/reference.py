"""The content function of contents.cu in NumPy, written from its description: what set i holds for a nonce."""

from __future__ import annotations

import numpy as np

from keepfast.gpu.layout import Layout, Tensor

WEYL = np.uint32(0x9E3779B1)
STEP, GOLDEN = np.uint64(0xD1342543DE82EF95), np.uint64(0x9E3779B97F4A7C15)


def hash64(x: np.ndarray) -> np.ndarray:
    x = np.asarray(x, np.uint64) + GOLDEN
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def mix32(x: np.ndarray) -> np.ndarray:
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    x = (x ^ (x >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return x ^ (x >> np.uint32(16))


def below(h: np.ndarray, n: int) -> np.ndarray:
    return ((h.astype(np.uint64) * np.uint64(n)) >> np.uint64(32)).astype(np.uint32)


def one(n: int) -> np.ndarray:
    return np.array([n & (1 << 64) - 1], np.uint64)


def poison(pattern: int, size: int) -> np.ndarray:
    """The pattern over and over, from its first byte."""
    return np.resize(np.frombuffer(pattern.to_bytes(4, "little"), np.uint8), size)


def mixed(tensor: Tensor) -> int:
    """Granules of a row when a tensor is mixed by granules, 0 when one draw is taken whole."""
    plain, at = True, 1
    for n, stride in zip(tensor.shape[::-1], tensor.strides[::-1], strict=True):
        plain, at = plain and (n == 1 or stride == at), at * n
    if tensor.refresh != "element" or tensor.role in ("index", "meta") or not tensor.shape or not plain:
        return 0
    width = tensor.nbytes // (at // tensor.shape[-1])
    return width // 16 if width % 16 == 0 else 0


def draws_of(tensor: Tensor, index: int, count: int, nonce: int) -> np.ndarray:
    """For each granule, the draw it is taken from."""
    granules = np.arange(-(-tensor.nbytes // 16), dtype=np.uint64)
    key = hash64(one(nonce) ^ one(index + 1) * STEP)
    row = mixed(tensor)
    if row == 0 or count == 1:
        return np.full(len(granules), int(hash64(key)[0]) % count)
    mine = hash64(key ^ one(tensor.offset + 1))
    low, high = np.uint32(int(mine[0]) & 0xFFFFFFFF), np.uint32(int(mine[0]) >> 32)
    small = granules.astype(np.uint32)
    h = mix32(small // np.uint32(row) * WEYL + low)
    a = below(h, count)
    b = (a + np.uint32(1) + below(mix32(h ^ high), count - 1)) % np.uint32(count)
    picked = np.where(mix32(small * WEYL + high) & np.uint32(1), b, a)
    return picked.astype(np.int64)


def contents(layout: Layout, bank: np.ndarray, index: int, nonce: int, what: tuple[int, bool]) -> np.ndarray:
    """Bytes of set `index`. `bank`: (draws, at least set_bytes) of bytes. `what`: the poison's pattern, and whether draws are taken as
    they are."""
    pattern, verbatim = what
    made = np.zeros(layout.set_bytes, np.uint8)
    at = 0
    for tensor in sorted((g.tensor for g in layout.tensors if g.tensor is not None and g.tensor.nbytes), key=lambda t: t.offset):
        made[at : tensor.offset] = poison(pattern, tensor.offset - at)
        at = tensor.offset + tensor.nbytes
        if tensor.role == "scratch":
            made[tensor.offset : at] = poison(pattern, tensor.nbytes)
            continue
        picked = np.full(-(-tensor.nbytes // 16), index % len(bank)) if verbatim else draws_of(tensor, index, len(bank), nonce)
        places = np.arange(tensor.offset, at)
        made[tensor.offset : at] = bank[picked[(places - tensor.offset) // 16], places]
    made[at:] = poison(pattern, layout.set_bytes - at)
    return made
