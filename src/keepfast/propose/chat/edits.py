"""Edits as a model writes them: blocks in its answer, parsed and applied exactly or refused with the exact error.

Owns the format. Must not know models, networks or tasks; what comes in is hostile text, and nothing of it raises.

    <<<<<<< FILE path              the whole file; created when it is new
    <<<<<<< SEARCH path            whole lines that are there exactly once, `=======`, the lines to put in their place
    <<<<<<< DELETE path            the file goes
    >>>>>>> END                    ends each of them; `>>>>>>> REPLACE` may end a search

A block whose contents hold such lines is written with longer markers: all of its markers have the same length.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

SHORTEST = 7
MOST_ERRORS = 8
_OPEN = re.compile(r"(<{7,})(?: (\S+)(?: (.*))?)?")
_CLOSE = re.compile(r"(>{7,})(?: (END|REPLACE|END WITHOUT NEWLINE))?")
_RUN = re.compile(r"^(<{7,}|={7,}|>{7,})", re.MULTILINE)


class Whole(Struct, frozen=True):
    path: str
    text: str


class Replace(Struct, frozen=True):
    """`search` and `replace` are whole lines, each ended by a newline; no lines at all is the empty string."""

    path: str
    search: str
    replace: str


class Remove(Struct, frozen=True):
    path: str


Edit = Whole | Replace | Remove


class Block(Struct, frozen=True):
    """An edit and the line of the answer where it begins, from 1."""

    line: int
    edit: Edit


class Parsed(Struct, frozen=True):
    """What an answer holds: its blocks in order, what is wrong with others, and the lines outside of blocks."""

    blocks: tuple[Block, ...]
    errors: tuple[str, ...]
    prose: str

    @property
    def edits(self) -> tuple[Edit, ...]:
        return tuple(b.edit for b in self.blocks)


class Applied(Struct, frozen=True):
    """(path, new bytes, or None when it is removed) of files that differ now, sorted; or errors, and then nothing is applied."""

    changed: tuple[tuple[str, bytes | None], ...] = ()
    errors: tuple[str, ...] = ()


# --------------------------------------------------------------------------------------------- writing


def render(edits: Iterable[Edit]) -> str:
    """The text that `parse` reads as exactly these edits. Paths are one line without spaces around them."""
    return "".join(_rendered(edit) for edit in edits)


def _rendered(edit: Edit) -> str:
    n = marker_length(_bodies(edit))
    if isinstance(edit, Remove):
        return f"{'<' * n} DELETE {edit.path}\n{'>' * n} END\n"
    if isinstance(edit, Replace):
        return f"{'<' * n} SEARCH {edit.path}\n{edit.search}{'=' * n}\n{edit.replace}{'>' * n} REPLACE\n"
    unended = edit.text != "" and not edit.text.endswith("\n")
    return f"{'<' * n} FILE {edit.path}\n{edit.text}" + (f"\n{'>' * n} END WITHOUT NEWLINE\n" if unended else f"{'>' * n} END\n")


def _bodies(edit: Edit) -> tuple[str, ...]:
    if isinstance(edit, Whole):
        return (edit.text,)
    return (edit.search, edit.replace) if isinstance(edit, Replace) else ()


def marker_length(bodies: Iterable[str]) -> int:
    """How long markers must be so that no line of these bodies is taken for one."""
    return max((len(run) + 1 for body in bodies for run in _RUN.findall(body)), default=SHORTEST)


# --------------------------------------------------------------------------------------------- reading


def parse(answer: str) -> Parsed:
    """All blocks of an answer. Never raises; what is no block is prose, and what is nearly one is an error."""
    lines = _one_newline(answer).split("\n")
    blocks: list[Block] = []
    errors: list[str] = []
    prose: list[str] = []
    at = 0
    while at < len(lines):
        opened = _OPEN.fullmatch(lines[at].rstrip())
        if opened is None:
            prose.append(lines[at])
            at += 1
            continue
        end = _end(lines, at + 1, len(opened[1]))
        found = _block(lines, at, end, opened)
        if isinstance(found, str):
            errors.append(found)
        else:
            blocks.append(found)
        at = end + 1 if end < len(lines) and _CLOSE.fullmatch(lines[end].rstrip()) else end
    return Parsed(tuple(blocks), tuple(errors[:MOST_ERRORS]), "\n".join(prose))


def _one_newline(text: str) -> str:
    ends = text.count("\n")
    return text.replace("\r\n", "\n") if ends and text.count("\r\n") == ends else text


def _end(lines: list[str], start: int, n: int) -> int:
    """Index of the line that ends a block with markers of length n: its end, or where another begins, or the end of the answer."""
    left, right = "<" * n, ">" * n
    for at in range(start, len(lines)):
        line = lines[at]
        if line.startswith(right) and _marks(_CLOSE, line, n):
            return at
        if line.startswith(left) and _marks(_OPEN, line, n):
            return at
    return len(lines)


def _marks(pattern: re.Pattern[str], line: str, n: int) -> bool:
    found = pattern.fullmatch(line.rstrip())
    return found is not None and len(found[1]) == n


def _block(lines: list[str], at: int, end: int, opened: re.Match[str]) -> Block | str:
    n, word, path = len(opened[1]), opened[2] or "", (opened[3] or "").strip()
    where = f"the block at line {at + 1} of your answer"
    if word not in ("FILE", "SEARCH", "DELETE"):
        return f"{where} begins with `{lines[at][:80].rstrip()}`; it must be FILE, SEARCH or DELETE and a path"
    if not path:
        return f"{where} names no path: write `{opened[1]} {word} path`"
    where += f" ({word} {path[:200]})"
    if end == len(lines):
        return f"{where} is not ended: its last line must be `{'>' * n} END`"
    if (closed := _CLOSE.fullmatch(lines[end].rstrip())) is None:
        return f"{where} is not ended before the next begins at line {end + 1}; contents with such lines need longer markers"
    found = _edit(word, path, lines[at + 1 : end], closed)
    return f"{where} {found}" if isinstance(found, str) else Block(at + 1, found)


def _edit(word: str, path: str, body: list[str], closed: re.Match[str]) -> Edit | str:
    if word == "DELETE":
        return Remove(path) if not any(line.strip() for line in body) else "deletes the file and must be empty"
    if word == "FILE":
        text = "\n".join(body) if (closed[2] or "").endswith("NEWLINE") else _lines(body)
        return Whole(path, text)
    divider = "=" * len(closed[1])
    found = [i for i, line in enumerate(body) if line.rstrip() == divider]
    if len(found) != 1:
        count = "no line" if not found else f"{len(found)} lines"
        return f"has {count} `{divider}`; it needs exactly one between what is searched and what replaces it"
    return Replace(path, _lines(body[: found[0]]), _lines(body[found[0] + 1 :]))


def _lines(lines: list[str]) -> str:
    return "".join(line + "\n" for line in lines)


# --------------------------------------------------------------------------------------------- applying


def shown(data: bytes) -> str | None:
    """A file as the text that is searched: with `\\n` for line ends that are all `\\r\\n`; None when it is not UTF-8."""
    try:
        return _one_newline(data.decode("utf-8"))
    except UnicodeDecodeError:
        return None


def apply(blocks: Iterable[Block], files: Mapping[str, bytes], forbidden: Callable[[str], str]) -> Applied:
    """All blocks in order onto `files`, or none of them. `forbidden` says why a path may not be edited, "" when it may."""
    now: dict[str, bytes] = dict(files)
    errors: list[str] = []
    for block in blocks:
        error = forbidden(block.edit.path) or _apply(block.edit, now)
        if error:
            errors.append(f"{block.edit.path[:200]} (block at line {block.line}): {error}")
    inside = next((path for path in sorted(now) if any(up in now for up in _above(path))), "")
    if inside:
        errors.append(f"{inside[:200]}: a file stands where a folder of this path would be")
    if errors:
        return Applied(errors=tuple(errors[:MOST_ERRORS]))
    paths = sorted(p for p in now.keys() | files.keys() if now.get(p) != files.get(p))
    return Applied(tuple((path, now.get(path)) for path in paths))


def _above(path: str) -> Iterable[str]:
    return (path[:at] for at, c in enumerate(path) if c == "/")


def _apply(edit: Edit, now: dict[str, bytes]) -> str:
    """Applies one edit to `now`; what is wrong with it, or ""."""
    if isinstance(edit, Whole):
        return _put(edit.path, edit.text, now)
    if edit.path not in now:
        return "there is no such file; a new one is written with FILE"
    if isinstance(edit, Remove):
        del now[edit.path]
        return ""
    text = shown(now[edit.path])
    if text is None:
        return "the file is not UTF-8 text, so it can only be written whole"
    crlf = "\r" in now[edit.path].decode() and "\r" not in text
    found = _replaced(text, edit.search, edit.replace)
    return found[1] or _put(edit.path, found[0].replace("\n", "\r\n") if crlf else found[0], now)


def _put(path: str, text: str, now: dict[str, bytes]) -> str:
    if text.startswith("```") and text.rstrip().endswith("```") and not path.endswith(".md"):
        return "the contents are wrapped in ```; write the file's own lines and nothing else"
    try:
        now[path] = text.encode("utf-8")
    except UnicodeEncodeError:
        return "the contents are not UTF-8 text"
    return ""


def _replaced(text: str, search: str, replace: str) -> tuple[str, str]:
    """(the new text, "") or ("", the error). Linear in the text, whatever it holds."""
    if not search.strip():
        return "", "the search is empty; give the lines that are to be replaced, or write the file whole"
    open_end = not text.endswith("\n")
    hay = f"\n{text}\n" if open_end else f"\n{text}"
    places = _places(hay, "\n" + search)
    if not places:
        return "", "the search text was not found" + _near(hay, search)
    if len(places) > 1:
        at = ", ".join(str(hay.count("\n", 0, p) + 1) for p in places)
        more = "at least " if len(places) > 2 else ""
        return "", f"the search text was found {more}{len(places)} times (lines {at}); add lines around it until it is there once"
    new = hay[1 : places[0] + 1] + replace + hay[places[0] + 1 + len(search) :]
    return (new[:-1] if open_end and new.endswith("\n") else new), ""


def _places(hay: str, needle: str) -> list[int]:
    """Where it begins, overlaps too; the first three."""
    places: list[int] = []
    at = hay.find(needle)
    while at >= 0 and len(places) < 3:
        places.append(at)
        at = hay.find(needle, at + 1)
    return places


def _near(hay: str, search: str) -> str:
    """What the search text nearly was, as the end of a sentence."""
    bare = ["".join(line.split()) for line in search.split("\n")]
    at = "\n".join("".join(line.split()) for line in hay.split("\n")).find("\n" + "\n".join(bare))
    if at >= 0:
        return "; with other white space it is there: copy the lines exactly, indentation and blanks included"
    lines = set(hay.split("\n"))
    missing = next((line for line in search.split("\n") if line not in lines), None)
    if missing is None:
        return "; each of its lines is there, but not one after the other"
    return f"; the first of its lines that is no line of the file is `{missing[:200]}`"
