"""Arguments as plain data: what a tensor or a number looks like, and the bytes of a tensor on the CPU.

Torch and NumPy are known by what the program has imported. Must not know counts or files.
"""

from __future__ import annotations

import ctypes
import math
import sys
from typing import Any

LETTERS = 200  # of a text
ITEMS = 16  # of a list
EXCERPT = 1 << 16  # elements of a tensor that is too large to be kept whole
TRACED = ("FakeTensor", "FunctionalTensor", "BatchedTensor", "GradTrackingTensor")
Key = tuple[Any, ...]


class Traced(Exception):
    """No call: a compiler or a transformation looks at the function."""


def key_of(value: Any, depth: int = 0) -> Key:
    """Hashable, and equal for calls that a kernel cannot tell apart by shapes and numbers."""
    if value is None:
        return ("none",)
    if isinstance(value, (bool, int, float, str)) and type(value) in (bool, int, float, str):
        return (type(value).__name__, str(value)[:LETTERS] if isinstance(value, str) else repr(value)[:LETTERS])
    library = library_of(value)
    if library:
        return _tensor(library, value)
    if isinstance(value, (list, tuple)) and depth < 2 and len(value) <= ITEMS:
        return ("list", tuple(key_of(one, depth + 1) for one in value))
    kind = type(value)
    named = kind.__module__ == "torch" and kind.__name__ in ("dtype", "device", "layout", "memory_format")
    return ("other", str(value)[:LETTERS] if named else f"{kind.__module__}.{kind.__qualname__}"[:LETTERS])


def library_of(value: Any) -> str:
    for name, attribute in (("torch", "Tensor"), ("numpy", "ndarray")):
        kind = getattr(sys.modules.get(name), attribute, None)
        if kind is not None and isinstance(value, kind):
            return name
    return ""


def _tensor(library: str, value: Any) -> Key:
    if library == "numpy":
        size = value.itemsize or 1
        return ("numpy", tuple(value.shape), tuple(s // size for s in value.strides), value.dtype.name, "cpu")
    if type(value).__name__ in TRACED or value.device.type == "meta":
        raise Traced
    if value.layout is not sys.modules["torch"].strided:
        return ("other", f"torch.Tensor {value.layout}")
    shape, stride = tuple(map(int, value.shape)), tuple(map(int, value.stride()))
    return ("torch", shape, stride, str(value.dtype).rpartition(".")[2], value.device.type)


def plain(key: Key) -> dict[str, Any]:
    """A key as it is written down."""
    if key[0] in ("torch", "numpy"):
        return {"kind": key[0], "shape": key[1], "stride": key[2], "dtype": key[3], "device": key[4]}
    if key[0] == "list":
        return {"kind": "list", "items": [plain(one) for one in key[1]]}
    return {"kind": key[0], "text": key[1] if len(key) > 1 else ""}


def elements(key: Key) -> int:
    if key[0] in ("torch", "numpy"):
        return math.prod(key[1])
    return sum(elements(one) for one in key[1]) if key[0] == "list" else 0


def tensors(named: list[tuple[str, Any]]) -> list[tuple[str, int, Any]]:
    """Name of the argument, place in its list (or -1), tensor."""
    found = []
    for name, value in named:
        if library_of(value):
            found.append((name, -1, value))
        elif isinstance(value, (list, tuple)) and len(value) <= ITEMS:
            found += [(name, i, one) for i, one in enumerate(value) if library_of(one)]
    return found


def capturing(parts: list[tuple[str, int, Any]]) -> bool:
    """Whether a CUDA graph is being captured on this stream: then nothing may be copied."""
    if not any(library_of(v) == "torch" and v.device.type == "cuda" for _, _, v in parts):
        return False
    return bool(sys.modules["torch"].cuda.is_current_stream_capturing())


def size_of(value: Any) -> int:
    """Bytes of its elements, whatever lies between them."""
    if library_of(value) == "numpy":
        return int(value.size * value.itemsize)
    return int(value.numel() * value.element_size())


def contents(value: Any, most: int) -> tuple[bytes, bool]:
    """The elements in order, and whether they are all: of a tensor larger than `most` bytes every so-manieth."""
    whole = size_of(value) <= most
    if library_of(value) == "numpy":
        return (value if whole else value[_thin(value.shape)]).tobytes(), whole
    torch = sys.modules["torch"]
    with torch.no_grad(), torch._C._DisableTorchDispatch():  # nobody else is to see these copies
        source = value.detach()
        near = (source if whole else source[_thin(source.shape)]).cpu().contiguous()
        if near.is_conj() or near.is_neg():
            near = near.resolve_conj().resolve_neg()
        return ctypes.string_at(near.data_ptr(), near.numel() * near.element_size()), whole


def _thin(shape: Any) -> tuple[slice, ...]:
    """A view of at most EXCERPT elements, spread over the tensor."""
    left, steps = EXCERPT, []
    for size in reversed(tuple(shape)):
        kept = max(1, min(int(size), left))
        steps.append(slice(None, None, -(-int(size) // kept) if size else 1))
        left = max(1, left // kept)
    return tuple(reversed(steps))


def returned(result: Any, parts: list[tuple[str, int, Any]]) -> list[dict[str, Any]]:
    """What came back, flat: each value, and the argument that it is or shares its memory with."""
    values = list(result) if isinstance(result, (list, tuple)) else [result]
    found = []
    for value in values[:ITEMS]:
        same = next((name for name, _, part in parts if part is value or _shares(part, value)), "")
        found.append({**plain(key_of(value)), "argument": same})
    return found


def _shares(one: Any, other: Any) -> bool:
    if library_of(one) != "torch" or library_of(other) != "torch":
        return False
    return bool(one.device == other.device and one.data_ptr() == other.data_ptr() and one.data_ptr() != 0)
