"""What a kernel image says of itself: whether two hold the same, what memory its module keeps, how its tensor cores add up.

The hash is over code, constants and what the driver reads about kernels; debug sections hold file names and lines, which a comment moves:
they do not count. Reads hostile bytes as data, every offset checked.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Collection, Iterator

CODE = (".text", ".nv.constant", ".nv.global", ".nv.shared", ".nv.local", ".nv.info", ".rel.text", ".rela.text")
GLOBALS = (".nv.global", ".nv.global.init")
NOBITS, MAX_SECTIONS = 8, 8192
WRITABLE, ALLOCATED = 1, 2
DEBUG = (".debug_", ".rel.debug_", ".rela.debug_", ".nv_debug_", ".rel.nv_debug_", ".rela.nv_debug_")
# Instructions of 16 bytes, sm_70 to sm_90: the low 12 bits, the name, and the bit of the upper half that says that sums are in float32.
# From sm_100 on the type of the sums is in a descriptor that the kernel makes, and not in the instruction.
MATRIX = {
    0x23C: ("HMMA", 12), 0x9F0: ("HGMMA", 11), 0xDF0: ("HGMMA", 11),
    0x27A: ("QMMA", 13), 0x9F3: ("QGMMA", 11), 0xDF3: ("QGMMA", 11),
}  # fmt: skip
Head = tuple[int, ...]


def code_hash(image: bytes) -> str:
    """sha256 in hexadecimal; of an image that is no sound ELF file it is over all its bytes."""
    try:
        return _hash(image)
    except (struct.error, IndexError, ValueError, OverflowError):
        return hashlib.sha256(image).hexdigest()


def _hash(image: bytes) -> str:
    digest = hashlib.sha256(image[16:20] + image[48:52])  # kind, machine and flags: the architecture
    for name, head in sorted(_sections(image)):
        if name.startswith(CODE):
            digest.update(f"{name} {head[1]} {head[5]}\n".encode())
            digest.update(b"" if head[1] == NOBITS else _piece(image, head[4], head[5]))
    return digest.hexdigest()


def kept_bytes(image: bytes) -> int:
    """Bytes of `__device__` variables of the module, which kernels can write and which stay. ValueError for what is no image."""
    return sum(head[5] for name, head in _read(image) if name in GLOBALS and head[2] & WRITABLE)


def body(image: bytes) -> dict[str, str]:
    """A hash of each part: header, sections by number and name with their heads, segments. Two images with the same ones load alike.

    Of lines and names for debuggers, which are not loaded, only that they are there: ptxas writes the date of the source file into them,
    where it finds it. ValueError for what is no image.
    """
    try:
        return dict(_body(image))
    except (struct.error, IndexError, OverflowError) as error:
        raise ValueError(f"no kernel image: {error}") from None


def _body(image: bytes) -> Iterator[tuple[str, str]]:
    left = 4 * len(image)  # sections and segments of a sound file name each byte about twice

    def said(head: tuple[object, ...], offset: int, size: int) -> str:
        nonlocal left
        if (left := left - size) < 0:
            raise ValueError("no kernel image: its parts overlap")
        return hashlib.sha256(repr(head).encode() + _piece(image, offset, size)).hexdigest()

    yield "header", said((image[:32], image[48:64]), 0, 0)  # less the places of both tables
    for number, (name, (_, kind, flags, address, offset, size, *others)) in enumerate(_sections(image)):
        if name.startswith(DEBUG) and not flags & ALLOCATED:
            yield f"{number} {name}", said((kind, flags, others), 0, 0)
        else:
            yield f"{number} {name}", said((kind, flags, address, size, others), offset, 0 if kind == NOBITS else size)
    (start,), (step, count) = struct.unpack_from("<Q", image, 32), struct.unpack_from("<HH", image, 54)
    for number in range(count):
        kind, flags, offset, *places, size, memory, align = struct.unpack_from("<IIQQQQQQ", image, start + number * step)
        table = offset == start and size <= step * count  # of segments: it holds the offsets of the others
        yield f"segment {number}", said((kind, flags, places, size, memory, align), offset, 0 if table else size)


def low_sums(image: bytes, kernels: Collection[str]) -> tuple[str, ...]:
    """Tensor core instructions of these kernels, and of functions that they may call, as in "HMMA, sums in float16" or "QMMA of 8-bit
    floats, sums in float32". Those that multiply 16-bit floats or TF32 and add up in float32 are left out. ValueError for what is no image.
    """
    sections = _read(image)
    entries = {name.removeprefix(".nv.constant0.") for name, _ in sections if name.startswith(".nv.constant0.")}
    found: dict[str, None] = {}
    for name, head in sections:
        function = name.removeprefix(".text.")
        if name.startswith(".text.") and (function in kernels or function not in entries):
            if head[4] + head[5] > len(image):
                raise ValueError(f"no kernel image: {name} ends beyond it")
            found |= dict.fromkeys(_matrix(_piece(image, head[4], head[5])))
    return tuple(found)


def _matrix(code: bytes) -> Iterator[str]:
    for low, high in struct.iter_unpack("<QQ", code[: len(code) // 16 * 16]):
        if (known := MATRIX.get(low & 0xFFF)) is None:
            continue
        name, bit = known
        of, sums = " of 8-bit floats" if name.startswith("Q") else "", "float32" if high >> bit & 1 else "float16"
        if of or sums == "float16":
            yield f"{name}{of}, sums in {sums}"


def _read(image: bytes) -> list[tuple[str, Head]]:
    try:
        return _sections(image)
    except (struct.error, IndexError, OverflowError) as error:
        raise ValueError(f"no kernel image: {error}") from None


def _sections(image: bytes) -> list[tuple[str, Head]]:
    """Names and headers."""
    if image[:6] != b"\x7fELF\x02\x01":
        raise ValueError("no 64-bit little-endian ELF file")
    (start,) = struct.unpack_from("<Q", image, 40)
    size, count, names_at = struct.unpack_from("<HHH", image, 58)
    if count > MAX_SECTIONS or size < 64:
        raise ValueError("section table")
    heads = [struct.unpack_from("<IIQQQQIIQQ", image, start + i * size) for i in range(count)]
    names = _piece(image, heads[names_at][4], heads[names_at][5])
    return [(names[h[0] : names.index(b"\0", h[0])].decode(), h) for h in heads]


def _piece(image: bytes, offset: int, size: int) -> bytes:
    if offset + size > len(image):
        raise IndexError(f"nothing at {offset}")
    return image[offset : offset + size]
