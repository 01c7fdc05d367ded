"""Kernel images as the driver loads them: a CUPTI callback on every module, through ctypes."""

from __future__ import annotations

import ctypes
import glob
import sys
from pathlib import Path

RESOURCE_DOMAIN, MODULE_LOADED = 3, 6


class _Resource(ctypes.Structure):
    _fields_ = (("context", ctypes.c_void_p), ("handle", ctypes.c_void_p), ("descriptor", ctypes.c_void_p))


class _Module(ctypes.Structure):
    _fields_ = (("id", ctypes.c_uint32), ("size", ctypes.c_size_t), ("image", ctypes.c_void_p))


class Images:
    """Collects images from the moment it is made; make it before the first CUDA call."""

    def __init__(self) -> None:
        self.found: list[bytes] = []
        self._lib = ctypes.CDLL(library())
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)
        self._callback = kind(self._loaded)
        subscriber = ctypes.c_void_p()
        if self._lib.cuptiSubscribe(ctypes.byref(subscriber), self._callback, None) != 0:
            raise RuntimeError("cuptiSubscribe failed: is another profiler attached?")
        if self._lib.cuptiEnableCallback(1, subscriber, RESOURCE_DOMAIN, MODULE_LOADED) != 0:
            raise RuntimeError("cuptiEnableCallback failed")

    def _loaded(self, _user: object, _domain: int, _which: int, data: int) -> None:
        resource = ctypes.cast(data, ctypes.POINTER(_Resource)).contents
        module = ctypes.cast(resource.descriptor, ctypes.POINTER(_Module)).contents
        if module.image and module.size:
            self.found.append(ctypes.string_at(module.image, module.size))

    def of(self, kernel: bytes) -> bytes | None:
        """The image loaded last that holds this kernel."""
        return next((image for image in reversed(self.found) if kernel in image), None)


def library() -> str:
    """Path of libcupti: in the nvidia packages, else by its name."""
    folders = [Path(p) for p in sys.path if p.endswith("site-packages")]
    found = sorted(hit for folder in folders for hit in glob.glob(str(folder / "nvidia" / "**" / "libcupti.so*"), recursive=True))
    return found[0] if found else "libcupti.so"
