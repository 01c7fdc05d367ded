"""Makes foreign text harmless: titles, compiler messages, diffs and paths come from candidates and from tools they can steer.

Owns what may reach a terminal or a page. Must not know where the text came from. HTML entities are the template's
job (autoescape); this file removes what an entity cannot: escape sequences, direction marks, line breaks, lone surrogates.
"""

from __future__ import annotations

import re
import unicodedata

STEERS = re.compile("[\x00-\x08\x0b-\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]|\r(?!\n)")


def line(text: str) -> str:
    """`text` as one line of printable characters; a tab becomes a space, everything else is shown as its escape (`\\x1b`)."""
    text = text.replace("\t", " ")
    return text if text.isprintable() else "".join(c if c.isprintable() else _shown(c) for c in text)


def lines(text: str) -> list[str]:
    """`text` split at newlines only, tabs expanded to 4 columns, every line as `line` gives it. A CR before LF is dropped."""
    return [line(part.removesuffix("\r").expandtabs(4)) for part in text.split("\n")]


def patch(text: str) -> str:
    """`text` for a pipe: tabs, line ends and every letter stay, so `git apply` takes it; what steers a terminal becomes its escape."""
    return STEERS.sub(lambda found: _shown(found[0]), text)


def _shown(char: str) -> str:
    if char == "\n":
        return "\\n"
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def width(text: str) -> int:
    """Columns that `text` takes in a terminal: 2 for wide characters, 0 for combining ones."""
    return len(text) if text.isascii() else sum(_columns(c) for c in text)


def _columns(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def clip(text: str, columns: int) -> str:
    """`text` in at most `columns` columns; what is cut ends in an ellipsis."""
    if width(text) <= columns:
        return text
    kept, used = [], 0
    for char in text:
        used += _columns(char)
        if used > columns - 1:
            break
        kept.append(char)
    return "".join(kept).rstrip() + "…"


def pad(text: str, columns: int) -> str:
    return text + " " * max(0, columns - width(text))


def fold(text: str, columns: int) -> list[str]:
    """`text` broken at spaces into lines of at most `columns` columns; a longer word is cut where the line ends."""
    out, current = [], ""
    for word in text.split(" "):
        joined = f"{current} {word}" if current else word
        if width(joined) <= columns:
            current = joined
            continue
        if current:
            out.append(current)
        *full, current = _pieces(word, columns)
        out.extend(full)
    return [*out, current] if current or not out else out


def _pieces(word: str, columns: int) -> list[str]:
    pieces, piece, used = [], "", 0
    for char in word:
        if used + _columns(char) > columns and piece:
            pieces.append(piece)
            piece, used = "", 0
        piece, used = piece + char, used + _columns(char)
    return [*pieces, piece]
