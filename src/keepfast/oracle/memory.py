"""Memory shared with the judge and the launcher, as tensors of bytes: exported and imported device memory, and memfds.

Must not know layouts, draws or reference.py. What is mapped is unmapped by `close`, after which its tensor must not be touched.
"""

from __future__ import annotations

import mmap
import os
from contextlib import ExitStack
from typing import Protocol

import torch

from keepfast import wire
from keepfast.errors import MachineError
from keepfast.gpu.driver import BLOCK, CudaError, Device, Range, exported, imported, physical, release


class Memory(Protocol):
    """Bytes that lie in shared memory: `image` is the tensor over them, `size` how many there are."""

    image: torch.Tensor
    size: int

    def descriptor(self) -> int:
        """A new descriptor for somebody else, which the caller closes."""

    def close(self) -> None: ...


class Host:
    """A memfd. `lent` maps the memfd of somebody else, privately: what is written to it stays here."""

    def __init__(self, size: int, lent: int = -1) -> None:
        self.size = size
        if lent >= 0 and os.fstat(lent).st_size < size:
            raise MachineError(f"the shared memory has {os.fstat(lent).st_size} bytes, {size} are needed")
        self.fd = os.dup(lent) if lent >= 0 else wire.memfd("bank", size)
        flags = mmap.MAP_PRIVATE if lent >= 0 else mmap.MAP_SHARED
        self.memory: mmap.mmap | None = mmap.mmap(self.fd, size, flags=flags)
        self.image = torch.frombuffer(self.memory, dtype=torch.uint8)

    def descriptor(self) -> int:
        return os.dup(self.fd)

    def close(self) -> None:
        """The mapping itself goes when its last tensor does."""
        self.image = torch.empty(0, dtype=torch.uint8)
        self.memory = None
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1


class Gpu:
    """A physical allocation of our own that can be exported, or one that somebody else exported as the descriptor `lent`."""

    def __init__(self, device: Device, size: int, lent: int = -1) -> None:
        self.device = device
        self.size = -(-size // BLOCK) * BLOCK
        with ExitStack() as stack:
            try:
                self.handle = imported(device, lent) if lent >= 0 else physical(device, self.size, exportable=True)
                stack.callback(release, device, self.handle)
                self.range = Range(device, 0, self.size)
                stack.callback(self.range.close)
                self.range.map(self.range.base, self.size, self.handle)
                self.range.access(True)
            except CudaError as error:
                step = "use smaller cases or fewer draws, or free the memory that other processes hold (nvidia-smi)"
                raise MachineError(f"no shared GPU memory of {self.size >> 20} MiB: {error}", next_step=step) from None
            self.image = torch.as_tensor(_Raw(self.range.base, self.size), device=f"cuda:{int(device.handle)}")
            if self.image.data_ptr() != self.range.base:
                raise MachineError("torch copied shared GPU memory instead of using it in place", next_step="use another version of torch")
            stack.pop_all()

    def descriptor(self) -> int:
        try:
            return exported(self.device, self.handle)
        except CudaError as error:
            raise MachineError(f"GPU memory cannot be shared between processes: {error}", next_step="banks of kind `host` work") from None

    def close(self) -> None:
        """Waits for what torch queued, then gives the addresses and the memory back."""
        try:
            torch.cuda.synchronize(self.image.device)
        except RuntimeError:  # a kernel of reference.py broke the context: that is said, and this process ends
            return
        self.image = torch.empty(0, dtype=torch.uint8)
        self.range.close()
        release(self.device, self.handle)


class _Raw:
    """Device memory as torch takes it from strangers."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3, "strides": None}


class Memories:
    """Makes and maps shared memory for one torch device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._driver: Device | None = None

    def made(self, kind: str, size: int) -> Memory:
        return Gpu(self._known(kind), size) if kind == "gpu" else Host(size)

    def lent(self, kind: str, size: int, fd: int) -> Memory:
        """The memory of somebody else behind `fd`."""
        return Gpu(self._known(kind), size, fd) if kind == "gpu" else Host(size, fd)

    def _known(self, kind: str) -> Device:
        if kind != "gpu" or self.device.type != "cuda":
            raise MachineError(f"memory of kind `{kind}` on {self.device}", next_step="ask for `host`")
        if self._driver is None:
            torch.zeros(1, device=self.device)  # torch's primary context exists before it is retained
            self._driver = Device(self.device.index or 0)
        return self._driver
