"""Torch tensors in keepfast's element types: names, bits, float64. Must not know tasks, layouts or processes."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from keepfast import dtypes

_CALLED = {"float8_e8m0": "float8_e8m0fnu", "float4_e2m1": "float4_e2m1fn_x2"}  # in torch, where its name is another
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
BLOCK = 1 << 24  # elements that are worked on at once in float64, so that large results need little memory


def dtype_of(name: str) -> torch.dtype:
    """The torch type of an element type of ours; KeyError where this torch has none."""
    found = getattr(torch, _CALLED.get(name, name), None)
    if found is None:
        raise KeyError(name)
    return found


def name_of(dtype: torch.dtype) -> str:
    """Our name of a torch type, or "" where keepfast has none for it (complex, quantised)."""
    known = {getattr(torch, _CALLED.get(name, name), None): name for name in dtypes.names()}
    return known.get(dtype, "")


def eps_of(dtype: torch.dtype) -> float:
    return float(dtypes.by_name(name_of(dtype)).eps or 0.0)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as whole numbers: what copies and compares any type, NaN payloads included."""
    return tensor.view(_BITS[tensor.element_size()])


def small(dtype: torch.dtype) -> bool:
    """Floats of at most 8 bits: they are codes, with steps too coarse for an error budget."""
    return bool(dtype.is_floating_point) and dtype.itemsize == 1


def packed(dtype: torch.dtype) -> bool:
    """Two elements to a byte: torch moves them, and computes nothing with them."""
    return name_of(dtype) == "float4_e2m1"


def wide(value: object) -> object:
    """A private copy, floating tensors in float64."""
    if not isinstance(value, torch.Tensor):
        return value
    floating = value.dtype.is_floating_point and not packed(value.dtype)
    return value.to(torch.float64, copy=True) if floating else value.clone()


def copy(value: object) -> object:
    return value.clone() if isinstance(value, torch.Tensor) else value


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Bit for bit, shape and type included."""
    return a.shape == b.shape and a.dtype == b.dtype and bool(torch.equal(bits(a), bits(b)))


def equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """The same values: unlike `same`, zero is zero whatever its sign."""
    if not a.dtype.is_floating_point or packed(a.dtype) or a.shape != b.shape or a.dtype != b.dtype:
        return same(a.contiguous(), b.contiguous())
    x, y = a.reshape(-1), b.reshape(-1)
    return all(bool(torch.equal(x[part].double(), y[part].double())) for part in blocks(x.numel(), 1))


def blocks(count: int, width: int) -> Iterator[slice]:
    """Slices over `count` rows of `width` elements, BLOCK elements at once."""
    step = max(1, BLOCK // max(width, 1))
    for first in range(0, count, step):
        yield slice(first, min(count, first + step))


def finite(tensor: torch.Tensor) -> bool:
    """Whether no element is NaN or infinite; whole numbers are."""
    if not tensor.dtype.is_floating_point or packed(tensor.dtype):
        return True
    flat = tensor.reshape(-1)
    return all(bool(torch.isfinite(flat[part].double()).all()) for part in blocks(flat.numel(), 1))


def rms(tensor: torch.Tensor) -> float:
    """RMS of all elements, in float64."""
    flat = tensor.reshape(-1)
    total = sum(float(torch.square(flat[part].double()).sum()) for part in blocks(flat.numel(), 1))
    return float((total / max(flat.numel(), 1)) ** 0.5)


def unravel(place: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The index of the element at `place` of a contiguous tensor."""
    found: list[int] = []
    for size in reversed(shape):
        place, at = divmod(place, size)
        found.append(at)
    return tuple(reversed(found))
