"""Arguments of Python entries as torch tensors over the memory of a set, and what an entry may return.

Knows torch and layouts. Must not know streams, graphs or where memory comes from.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from keepfast.capture.refusals import Refused
from keepfast.gpu.layout import Layout, Output, Tensor
from keepfast.gpu.plan import Segment

if TYPE_CHECKING:
    import torch

# Where torch calls it otherwise. Packed float4 travels as bytes: no compiler of kernels takes torch's own type.
_CALLED = {"float8_e8m0": "float8_e8m0fnu", "float4_e2m1": "uint8"}
_ALSO = {"float4_e2m1": "float4_e2m1fn_x2"}  # what an output may be as well

Bytes = Callable[[int, int], "torch.Tensor"]
"""(address, size) -> that memory as a tensor of uint8, without a copy."""


class _Raw:
    """Device memory as torch takes it from strangers."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3, "strides": None}


def on_device(index: int) -> Bytes:
    import torch

    def memory(address: int, size: int) -> torch.Tensor:
        made = torch.as_tensor(_Raw(address, size), device=f"cuda:{index}")
        if made.data_ptr() != address:
            raise RuntimeError("torch copied device memory instead of using it in place")
        return made

    return memory


def dtype(name: str) -> torch.dtype:
    """The torch type of an element type of ours. Refused where this torch has none."""
    import torch

    found = getattr(torch, _CALLED.get(name, name), None)
    if not isinstance(found, torch.dtype):
        raise Refused("raised", f"torch {torch.__version__} has no {name}")
    return found


def argument(memory: Bytes, at: int, tensor: Tensor) -> torch.Tensor:
    """An argument of the set at `at`. It has a storage of its own, as a tensor that somebody else allocated would."""
    kind = dtype(tensor.dtype)
    data = memory(at + tensor.offset, max(tensor.nbytes, kind.itemsize)).view(kind)
    return data.as_strided(tensor.shape, tensor.strides, (tensor.start - tensor.offset) // kind.itemsize)


def host(sample: bytes, tensor: Tensor) -> torch.Tensor:
    """An argument of a set on the CPU, with the values that the image of the set has."""
    import torch

    kind, size = dtype(tensor.dtype), max(tensor.nbytes, dtype(tensor.dtype).itemsize)
    image = bytearray(sample[tensor.offset : tensor.offset + tensor.nbytes].ljust(size, b"\0"))
    return torch.frombuffer(image, dtype=torch.uint8).view(kind).as_strided(tensor.shape, tensor.strides, 0)


class Returned:
    """Checks what an entry returned. `holds`: whether an address is in the arena; [sets, end): the memory of all sets."""

    def __init__(self, layout: Layout, device: torch.device, holds: Callable[[int], bool], sets: tuple[int, int]) -> None:
        self.layout, self.device, self.holds, self.sets = layout, device, holds, sets

    def outputs(self, value: Any, written: Sequence[torch.Tensor]) -> tuple[Segment, ...]:
        """Where each fresh output lies. Written arguments may be handed back among them. Refused when it is not what the schema says."""
        values: tuple[Any, ...] = () if value is None else tuple(value) if isinstance(value, tuple | list) else (value,)
        fresh = [v for v in values if not any(_same(v, w) for w in written)]
        if len(fresh) != len(self.layout.outputs):
            names = ", ".join(f"`{o.name}`" for o in self.layout.outputs) or "nothing but written arguments"
            raise Refused("result", f"expected {names}, got {_listed(values)}")
        return tuple(self._output(o, v) for o, v in zip(self.layout.outputs, fresh, strict=True))

    def _output(self, output: Output, value: Any) -> Segment:
        import torch

        if type(value) is not torch.Tensor:
            raise Refused("result", f"`{output.name}`: expected a torch.Tensor, got {_kind(value)}")
        if why := self._unlike(output, value):
            wanted = f"a contiguous {output.dtype} tensor of shape {output.shape} on {self.device}"
            raise Refused("result", f"`{output.name}`: expected {wanted}, got {described(value)}: {why}")
        if not output.nbytes:
            return Segment(0, 0)
        start, (low, high) = value.data_ptr(), self.sets
        if low <= start < high:
            raise Refused("result", f"`{output.name}`: expected memory of its own, got memory of an argument")
        if not self.holds(start):
            raise Refused("result", f"`{output.name}`: expected memory of torch's allocator, got {start:#x}, which it did not give")
        return Segment(start, output.nbytes)

    def foreign(self, value: Any) -> str:
        """Why something that `prepare` returned is no tensor of this device, in memory of torch's allocator or of its weights; or ""."""
        import torch

        if type(value) is not torch.Tensor:
            return f"a {_kind(value)}"
        if value.layout != torch.strided or value.device != self.device:
            return described(value)
        held = not value.numel() or self.holds(value.data_ptr())
        return "" if held else f"a tensor at {value.data_ptr():#x}, in memory that torch's allocator did not give"

    def _unlike(self, output: Output, value: torch.Tensor) -> str:
        """ "" or what differs."""
        import torch

        kinds = {dtype(output.dtype), getattr(torch, _ALSO.get(output.dtype, ""), None)}
        differs = (
            (value.layout != torch.strided, "it is sparse"),
            (value.dtype not in kinds, "another type"),
            (tuple(value.shape) != output.shape, "another shape"),
            (value.device != self.device, "another device"),
            (value.layout == torch.strided and not value.is_contiguous(), "it is not contiguous"),
        )
        return next((why for wrong, why in differs if wrong), "")


def described(value: torch.Tensor) -> str:
    import torch

    name = str(value.dtype).removeprefix("torch.")
    strides = f" with strides {tuple(value.stride())}" if value.layout == torch.strided else f" of layout {value.layout}"
    return f"a {name} tensor of shape {tuple(value.shape)}{strides} on {value.device}"


def apart(results: Sequence[tuple[Segment, ...]], layout: Layout) -> None:
    """Refused when two results share memory."""
    names = [o.name for o in layout.outputs]
    placed = sorted((r.address, r.end, call, names[i]) for call, made in enumerate(results) for i, r in enumerate(made) if r.size)
    for (_, end, first, one), (start, _, second, other) in itertools.pairwise(placed):
        if start < end:
            where = f"`{other}` of call {second} lies in the memory of `{one}` of call {first}"
            raise Refused("result", f"{where}: expected memory of its own for every output of every call, got one place used twice")


def _same(value: Any, written: torch.Tensor) -> bool:
    """Whether `value` is an argument handed back, possibly as another tensor over the same memory."""
    import torch

    if value is written:
        return True
    if type(value) is not torch.Tensor or value.layout != torch.strided or not math.prod(value.shape):
        return False
    return bool(value.data_ptr() == written.data_ptr() and value.dtype == written.dtype and value.shape == written.shape)


def _kind(value: object) -> str:
    return "None" if value is None else f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")


def _listed(values: Sequence[object]) -> str:
    return ", ".join(_kind(v) for v in values) or "nothing"
