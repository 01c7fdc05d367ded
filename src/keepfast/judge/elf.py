"""What a shared object says of itself: whether two hold the same code, what it can keep from call to call, what it takes from outside.

Reads ELF files as data, every offset checked; the file comes from a hostile compiler run. Must not know how it was built.
Names that stay inside do not count; names of what is called outside do, since `expf` and `logf` may stand at the same place.
"""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

from msgspec import Struct

ALLOC, NOTE, NOBITS, DYNSYM = 2, 7, 8, 11
WRITE, TLS = 1, 0x400  # flags of sections
RELRO = 0x6474E552  # kind of a segment: read-only once it is loaded
# Names and what is made from names, and unwinding tables, which no call of a kernel reads.
NAMES = (".dynstr", ".dynsym", ".gnu.hash", ".hash", ".gnu.version", ".gnu.version_r", ".gnu.version_d", ".dynamic")
LEFT_OUT = (*NAMES, ".eh_frame", ".eh_frame_hdr")
NEEDED, MAX_SECTIONS = 1, 4096


class Section(Struct, frozen=True):
    name: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    address: int = 0


def code_hash(path: Path) -> str:
    """sha256, in hexadecimal, over the loadable sections of a 64-bit little-endian ELF file.

    Of a file that is not sound ELF it is the hash of the whole file, so that two different ones never look the same.
    """
    data = path.read_bytes()
    digest = hashlib.sha256()
    try:
        sections = _sections(data)
        for section in sections:
            if section.flags & ALLOC and section.kind != NOTE and section.name not in LEFT_OUT:
                digest.update(f"{section.name} {section.kind} {section.flags} {section.size}\n".encode())
                digest.update(b"" if section.kind == NOBITS else _piece(data, section.offset, section.size))
        for name in (*_imports(data, sections), *_needed(data, sections)):
            digest.update(name + b"\0")
    except (struct.error, IndexError, UnicodeDecodeError, OverflowError):
        return hashlib.sha256(data).hexdigest()
    return digest.hexdigest()


class Contents(Struct, frozen=True):
    """`kept`: (section, bytes) that stay writable once it is loaded, thread-local ones included. `imports`, `libraries`: names."""

    kept: tuple[tuple[str, int], ...]
    imports: tuple[str, ...]
    libraries: tuple[str, ...]


def contents(path: Path) -> Contents:
    """ValueError for a file that is not sound ELF."""
    data = path.read_bytes()
    try:
        sections, closed = _sections(data), _closed(data)
        needed, imports = _needed(data, sections), _imports(data, sections)
    except (struct.error, IndexError, UnicodeDecodeError, OverflowError) as error:
        raise ValueError(f"{path.name} is no sound ELF file: {error}") from None
    names = tuple(name.split(b" ", 1)[1].decode("utf-8", "replace") for name in imports)
    return Contents(_kept(sections, closed), names, tuple(name.decode("utf-8", "replace") for name in needed))


def _kept(sections: list[Section], closed: list[tuple[int, int]]) -> tuple[tuple[str, int], ...]:
    found = []
    for section in (s for s in sections if s.flags & ALLOC and s.flags & WRITE and s.size):
        read_only = any(low <= section.address and section.address + section.size <= high for low, high in closed)
        if section.flags & TLS or not read_only:
            found.append((section.name, section.size))
    return tuple(found)


def _closed(data: bytes) -> list[tuple[int, int]]:
    """Addresses that the loader makes read-only when it is done."""
    (start,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    heads = [struct.unpack_from("<IIQQQQQQ", data, start + i * size) for i in range(min(count, MAX_SECTIONS))]
    return [(h[3], h[3] + h[6]) for h in heads if h[0] == RELRO]


def _piece(data: bytes, offset: int, size: int) -> bytes:
    if offset + size > len(data):
        raise IndexError(offset)
    return data[offset : offset + size]


def _text(table: bytes, offset: int) -> bytes:
    return table[offset : table.index(b"\0", offset)] if b"\0" in table[offset:] else table[offset:]


def _sections(data: bytes) -> list[Section]:
    if data[:6] != b"\x7fELF\x02\x01":
        raise IndexError("no 64-bit little-endian ELF file")
    (start,) = struct.unpack_from("<Q", data, 40)
    size, count, names_at = struct.unpack_from("<HHH", data, 58)
    if count > MAX_SECTIONS or size < 64 or start + count * size > len(data):
        raise IndexError("section table")
    heads = [struct.unpack_from("<IIQQQQIIQQ", data, start + i * size) for i in range(count)]
    names = _piece(data, heads[names_at][4], heads[names_at][5])
    return [Section(_text(names, h[0]).decode(), h[1], h[2], h[4], h[5], h[6], h[3]) for h in heads]


def _imports(data: bytes, sections: list[Section]) -> list[bytes]:
    """Names of the symbols that the loader looks up elsewhere, with their numbers, which relocations use."""
    found = []
    for section in (s for s in sections if s.kind == DYNSYM):
        symbols, names = _piece(data, section.offset, section.size), _linked(data, sections, section)
        for at in range(0, len(symbols) - 23, 24):
            name, _, _, defined_in = struct.unpack_from("<IBBH", symbols, at)
            if not defined_in:
                found.append(b"%d %s" % (at // 24, _text(names, name)))
    return found


def _needed(data: bytes, sections: list[Section]) -> list[bytes]:
    """The libraries it asks for."""
    found = []
    for section in (s for s in sections if s.name == ".dynamic"):
        entries, names = _piece(data, section.offset, section.size), _linked(data, sections, section)
        pairs = [struct.unpack_from("<QQ", entries, at) for at in range(0, len(entries) - 15, 16)]
        found += [_text(names, value) for tag, value in pairs if tag == NEEDED]
    return found


def _linked(data: bytes, sections: list[Section], section: Section) -> bytes:
    names = sections[section.link]
    return _piece(data, names.offset, names.size)
