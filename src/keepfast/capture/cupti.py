"""What the driver does on behalf of a candidate, seen through CUPTI callbacks: images loaded, memory taken, work launched astray.

Must not know torch, graphs or plans. Callbacks run inside driver calls, so they note and return.
"""

from __future__ import annotations

import ctypes
import glob
import os
import sys
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

DRIVER_API, RESOURCE = 1, 3  # domains
MODULE_LOADED = 6
EXIT = 1

# Callback ids of cupti_driver_cbid.h, which never change.
LOADS = {18: "cuModuleLoad", 19: "cuModuleLoadData", 20: "cuModuleLoadDataEx", 21: "cuModuleLoadFatBinary"}
LIBRARY_LOADS = {678: "cuLibraryLoadData", 679: "cuLibraryLoadFromFile"}
FROM_FILE = {18, 679}  # their second parameter is a path
ALLOCATIONS = {
    243: "cuMemAlloc", 244: "cuMemAllocPitch", 371: "cuMemAllocManaged", 598: "cuMemAllocAsync", 599: "cuMemAllocAsync",
    611: "cuMemAllocFromPoolAsync", 612: "cuMemAllocFromPoolAsync", 39: "cuMemHostAlloc", 271: "cuMemHostAlloc", 294: "cuMemAllocHost",
}  # fmt: skip
PITCHED = 244
# Work on a stream: the name, and where in the parameters the stream is.
LAUNCHES = {
    307: ("cuLaunchKernel", 40), 442: ("cuLaunchKernel", 40), 652: ("cuLaunchKernelEx", -1), 653: ("cuLaunchKernelEx", -1),
    477: ("cuLaunchCooperativeKernel", 40), 478: ("cuLaunchCooperativeKernel", 40), 514: ("cuGraphLaunch", 8), 515: ("cuGraphLaunch", 8),
    306: ("cuMemcpyAsync", 24), 418: ("cuMemcpyAsync", 24), 281: ("cuMemcpyDtoDAsync", 24), 423: ("cuMemcpyDtoDAsync", 24),
    277: ("cuMemcpyHtoDAsync", 24), 421: ("cuMemcpyHtoDAsync", 24), 279: ("cuMemcpyDtoHAsync", 24), 422: ("cuMemcpyDtoHAsync", 24),
    289: ("cuMemcpy2DAsync", 8), 424: ("cuMemcpy2DAsync", 8), 216: ("cuMemsetD8Async", 24), 428: ("cuMemsetD8Async", 24),
    218: ("cuMemsetD16Async", 24), 429: ("cuMemsetD16Async", 24), 220: ("cuMemsetD32Async", 24), 430: ("cuMemsetD32Async", 24),
}  # fmt: skip
_OWN_DEFAULT = {442, 478, 653, 515, 418, 423, 421, 422, 424, 428, 429, 430}  # stream 0 means the thread's own, not the legacy one
_PER_THREAD, _CONFIG_STREAM = 2, 32


class _Resource(ctypes.Structure):
    _fields_ = (("context", ctypes.c_void_p), ("handle", ctypes.c_void_p), ("descriptor", ctypes.c_void_p))


class _Module(ctypes.Structure):
    _fields_ = (("id", ctypes.c_uint32), ("size", ctypes.c_size_t), ("image", ctypes.c_void_p))


class Api(ctypes.Structure):
    """CUpti_CallbackData."""

    _fields_ = (
        ("site", ctypes.c_int),
        ("function", ctypes.c_char_p),
        ("parameters", ctypes.c_void_p),
        ("returned", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("context", ctypes.c_void_p),
        ("context_id", ctypes.c_uint32),
        ("correlation", ctypes.c_void_p),
        ("correlation_id", ctypes.c_uint32),
    )


class Outside(Struct, frozen=True):
    """Memory that was taken from the driver directly. `where`: line of the candidate, or ""."""

    start: int
    end: int
    how: str
    where: str


class Images:
    """What was seen since this was made. `where` says which line of the candidate is running, once there is a candidate."""

    def __init__(self) -> None:
        self.loaded: list[bytes] = []  # in order
        self.given: dict[int, bytes] = {}  # module handle -> the cubin it was made of, where it was made of one
        self.libraries: dict[int, bytes] = {}  # the same for libraries
        self.outside: list[Outside] = []
        self.astray: list[str] = []
        self.where: Callable[[], str] = str
        self.captures: Callable[[int], bool] = _always  # whether work on a stream becomes part of a graph

    def of(self, kernel: bytes, module: int = 0) -> bytes | None:
        """The image of a kernel: that of its module where it is known, else the one loaded last that holds it."""
        found = self.given.get(module)
        if found is not None and has(found, kernel):
            return found
        newest = self.loaded[::-1]
        return next((image for image in newest if has(image, kernel)), None) or next((image for image in newest if kernel in image), None)

    def name_libraries(self, module_of: Callable[[int], int]) -> None:
        """Look up the modules of the libraries that were loaded."""
        for handle in tuple(self.libraries):
            if module := module_of(handle):
                self.given[module] = self.libraries.pop(handle)

    def see(self, domain: int, which: int, data: int) -> None:
        if domain == RESOURCE:
            self._module(data)
            return
        api = Api.from_address(data)
        if which in LAUNCHES:
            if api.site != EXIT:
                self._launch(which, int(api.parameters))
        elif api.site == EXIT and api.returned and ctypes.c_int.from_address(api.returned).value == 0:
            self._done(which, int(api.parameters))

    def _module(self, data: int) -> None:
        module = _Module.from_address(_Resource.from_address(data).descriptor)
        if module.image and module.size:
            self.loaded.append(ctypes.string_at(module.image, module.size))

    def _done(self, which: int, parameters: int) -> None:
        first, second = (ctypes.c_uint64.from_address(parameters + 8 * i).value for i in (0, 1))
        handle = ctypes.c_uint64.from_address(first).value
        if which in ALLOCATIONS:
            size = second if which != PITCHED else _pitched(parameters, second)
            self.outside.append(Outside(handle, handle + size, ALLOCATIONS[which], self.where()))
            return
        known = self.libraries if which in LIBRARY_LOADS else self.given
        known.pop(handle, None)  # the handle of something unloaded may come again
        if image := _file(second) if which in FROM_FILE else cubin(second):
            known[handle] = image

    def _launch(self, which: int, parameters: int) -> None:
        name, offset = LAUNCHES[which]
        at = ctypes.c_uint64.from_address(parameters).value + _CONFIG_STREAM if offset < 0 else parameters + offset
        stream = ctypes.c_uint64.from_address(at).value or (_PER_THREAD if which in _OWN_DEFAULT else 0)
        if not self.captures(stream):
            how = f"{name} on {'the default stream' if stream < 3 else 'a stream of its own'}"
            self.astray.append(": ".join(part for part in (self.where(), how) if part))


class Subscription:
    """CUPTI's callbacks, handed to `images` from the moment this is made: before the first CUDA call."""

    def __init__(self, images: Images) -> None:
        self._lib = ctypes.CDLL(library())
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)
        self._callback = kind(lambda _user, domain, which, data: images.see(domain, which, data))  # kept: CUPTI holds its address
        self._subscriber = ctypes.c_void_p()
        if code := self._lib.cuptiSubscribe(ctypes.byref(self._subscriber), self._callback, None):
            raise OSError(f"cuptiSubscribe failed with {code}: there is no NVIDIA driver, or a profiler is attached")
        if self._enable(True, RESOURCE, MODULE_LOADED) != 0:
            raise OSError("cuptiEnableCallback failed: this CUPTI does not report modules")
        for which in (*LOADS, *LIBRARY_LOADS, *ALLOCATIONS):
            self._enable(True, DRIVER_API, which)

    def launches(self, wanted: bool) -> None:
        """Whether launches are looked at. Only while something is captured: it takes time, and host time is measured before."""
        for which in LAUNCHES:
            self._enable(wanted, DRIVER_API, which)

    def _enable(self, wanted: bool, domain: int, which: int) -> int:
        return int(self._lib.cuptiEnableCallback(int(wanted), self._subscriber, domain, which))


def has(image: bytes, kernel: bytes) -> bool:
    """Whether an image holds the code of this kernel, not only a name that begins like it."""
    return b".text." + kernel + b"\0" in image


def cubin(address: int) -> bytes:
    """The ELF file at `address`, or b"" for anything else (PTX, a fat binary)."""
    if not address or ctypes.string_at(address, 5) != b"\x7fELF\x02":
        return b""

    def number(at: int, size: int) -> int:
        return int.from_bytes(ctypes.string_at(address + at, size), "little")

    programs, sections = number(0x20, 8), number(0x28, 8)
    end = max(64, programs + number(0x36, 2) * number(0x38, 2), sections + number(0x3A, 2) * number(0x3C, 2))
    for i in range(number(0x3C, 2)):
        at = sections + i * number(0x3A, 2)
        if number(at + 4, 4) != 8:  # SHT_NOBITS takes no place in the file
            end = max(end, number(at + 0x18, 8) + number(at + 0x20, 8))
    return ctypes.string_at(address, end)


def _file(address: int) -> bytes:
    """The cubin in the file whose path is at `address`, or b""."""
    path = Path(os.fsdecode(ctypes.string_at(address)))
    data = path.read_bytes() if path.is_file() else b""
    return data if data.startswith(b"\x7fELF") else b""


def library() -> str:
    """Path of libcupti: in the nvidia packages, where torch looks too, else in the toolkit, else by its name."""
    folders = [Path(p) for p in sys.path if p.endswith("site-packages")]
    found = [hit for folder in folders for hit in glob.glob(str(folder / "nvidia" / "**" / "libcupti.so*"), recursive=True)]
    toolkit = [hit for part in ("lib64", "extras/CUPTI/lib64", "lib") for hit in glob.glob(f"/usr/local/cuda/{part}/libcupti.so*")]
    return next(iter((*sorted(found), *sorted(toolkit))), "libcupti.so")


def _always(_stream: int) -> bool:
    return True


def _pitched(parameters: int, pitch_at: int) -> int:
    """Bytes of cuMemAllocPitch(dptr, pPitch, width, height, element)."""
    return ctypes.c_uint64.from_address(pitch_at).value * ctypes.c_uint64.from_address(parameters + 24).value
