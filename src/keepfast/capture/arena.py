"""The arena of arena.c from Python: blocks, what was touched, what was refused. Must not know torch or graphs."""

from __future__ import annotations

import ctypes

from msgspec import Struct

from keepfast.capture.refusals import Refused
from keepfast.gpu.plan import Segment

OPENED, TAKEN = 0, 2
PAGE = 2 << 20
_WORDS: dict[int, str] = {1: "the driver refused the addresses", 2: "arena", 3: "there is no libcuda.so.1", 4: "not an arena's numbers"}


class Live(Struct, frozen=True):
    """A block that is in use. `born`: since the mark."""

    address: int
    size: int
    born: bool

    @property
    def end(self) -> int:
        return self.address + self.size


class Arena:
    """`path`: the compiled arena.c, which torch loads from there too."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.base = self.size = self.max_bytes = 0
        self._lib = lib = ctypes.CDLL(path)
        lib.arena_open.argtypes = (ctypes.c_uint64,) * 3
        lib.arena_alloc.argtypes = (ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
        lib.arena_free.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
        lib.arena_alloc.restype = ctypes.c_void_p
        lib.arena_free.restype = lib.arena_epoch.restype = lib.arena_mark.restype = None
        lib.arena_block.argtypes = lib.arena_reserve.argtypes = (ctypes.c_uint64,)
        lib.arena_live.argtypes = lib.arena_touched.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
        lib.arena_live.restype = lib.arena_touched.restype = ctypes.c_size_t
        lib.arena_block.restype = lib.arena_mapped.restype = lib.arena_refused.restype = ctypes.c_uint64

    def open(self, base: int, size: int, max_bytes: int) -> str:
        """ "" or why not; "arena" when the addresses are taken."""
        code = int(self._lib.arena_open(base, size, max_bytes))
        if code == OPENED:
            self.base, self.size, self.max_bytes = base, size, max_bytes
        return "" if code == OPENED else _WORDS[code]

    def block(self, size: int) -> int:
        """Address of a block of whole pages. Refused when there is no memory."""
        return self._got(int(self._lib.arena_block(size)))

    def alloc(self, size: int) -> int:
        """Address of a block, as torch gets it. Refused when there is no memory."""
        return self._got(int(self._lib.arena_alloc(size, 0, None) or 0))

    def free(self, address: int) -> None:
        self._lib.arena_free(address, 0, 0, None)

    def reserve(self, size: int) -> bool:
        """Map memory ahead of need; False when there is not that much."""
        return bool(self._lib.arena_reserve(size))

    def epoch(self) -> None:
        """A call has ended: what it freed may be used again."""
        self._lib.arena_epoch()

    def mark(self) -> None:
        """Record from now on what is touched; what lives now is not given away until the next mark, even when it is freed."""
        self._lib.arena_mark()

    def live(self) -> tuple[Live, ...]:
        words = self._words(self._lib.arena_live, 3)
        return tuple(Live(words[i], words[i + 1], bool(words[i + 2])) for i in range(0, len(words), 3))

    def touched(self) -> tuple[Segment, ...]:
        """All that lived at the mark and all that was allocated since."""
        words = self._words(self._lib.arena_touched, 2)
        return tuple(Segment(words[i], words[i + 1]) for i in range(0, len(words), 2))

    @property
    def mapped(self) -> int:
        return int(self._lib.arena_mapped())

    def short(self) -> str:
        """What was asked for in vain since this was last called, as a sentence, or ""."""
        size = int(self._lib.arena_refused())
        if not size:
            return ""
        return f"{size:,} bytes were asked for; {self.mapped:,} of the {self.max_bytes:,} bytes of device memory it may have are mapped"

    def holds(self, address: int) -> bool:
        return self.base <= address < self.base + self.size

    def _got(self, address: int) -> int:
        if not address:
            raise Refused("memory", self.short())
        return address

    def _words(self, call: ctypes._NamedFuncPointer, width: int) -> list[int]:
        room = int(call(None, 0))
        words = (ctypes.c_uint64 * max(width * room, 1))()
        count = int(call(words, room))
        return list(words[: width * count])
