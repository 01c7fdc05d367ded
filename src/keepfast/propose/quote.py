"""Foreign text made fit for a brief: one line or a fence, cut, without what steers a reader, without paths of this machine.

What a candidate, a compiler or a model wrote may try to speak to the agent that reads it. Here it becomes text between two fences
that it cannot close. Owns that and nothing else; must not know what the text says.
"""

from __future__ import annotations

import re

TICKS = 12  # backticks in a row that are shown; a fence is longer than that at most by one
CUT = " ..."
_PATH = re.compile(r"(?<![\w./~*-])/(?:[^\s/:;,'\"`()<>|*]+/)+")


def shown(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def plain(text: str) -> str:
    """One line of printable characters; everything else is shown as its escape."""
    text = text.replace("\t", "    ")
    return text if text.isprintable() else "".join(c if c.isprintable() else shown(c) for c in text)


def clip(text: str, most: int) -> str:
    return text if len(text) <= most else text[: max(0, most - len(CUT))].rstrip() + CUT


class Quote:
    """Foreign text of one task. `folders`: absolute paths that are left out, the rest of a path stays."""

    def __init__(self, *folders: str) -> None:
        self._folders = sorted((f.rstrip("/") for f in folders if f.strip("/")), key=len, reverse=True)

    def line(self, text: str, most: int = 200) -> str:
        """`text` as one line of at most `most` characters, to be put inside a fence."""
        return clip(plain(self._here(text[: 4 * most])), most)

    def code(self, text: str, most: int = 120) -> str:
        """A name or an expression of the task's, between backticks that it cannot close, also in a table."""
        return "`" + self.line(text, most).replace("`", "'").replace("|", "\\|") + "`"

    def prose(self, text: str, most: int = 200) -> str:
        """A line that the human wrote, outside fences: no mark in it means anything."""
        return re.sub(r"([\\`*_<>#|~])", r"\\\1", self.line(text, most))

    def fence(self, text: str, room: int, kind: str = "text", *, paths: bool = False) -> str:
        """`text` between fences, in at most `room` characters, both fences included. `paths`: those in it stay, as in a source."""
        kept = text[: 2 * max(room, 0)]
        cut = len(kept) < len(text)
        lines = [plain(line.removesuffix("\r")) for line in (kept if paths else self._here(kept)).split("\n")]
        body = re.sub(f"`{{{TICKS + 1},}}", lambda m: "`" * TICKS + f"[{len(m[0]) - TICKS:,} more]", "\n".join(lines).strip("\n"))
        mark = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", body)), default=0))
        space = room - 2 * len(mark) - len(kind) - 3
        if cut or len(body) > space:
            body = _ended(body, space, text)
        return f"{mark}{kind}\n{body}\n{mark}"

    def _here(self, text: str) -> str:
        for folder in self._folders:
            text = text.replace(folder + "/", "").replace(folder, ".")
        return _PATH.sub(".../", text)


def _ended(body: str, space: int, whole: str) -> str:
    """`body` cut at the end of a line where there is one near, and how much of `whole` is missing."""
    note = f"... {len(whole):,} characters in all, the rest left out"
    kept = body[: max(0, space - len(note) - 1)]
    at = kept.rfind("\n")
    kept = kept[:at] if at > len(kept) // 2 else kept
    return clip(f"{kept.rstrip()}\n{note}".lstrip("\n"), max(space, 0))


def fit(blocks: list[str], room: int, more: str, gap: str = "\n") -> str:
    """The first of `blocks` that fit `room` characters, joined; what does not is counted: `... 31 more experiments left out`."""
    total = sum(len(b) for b in blocks) + len(gap) * max(0, len(blocks) - 1)
    if total <= room:
        return gap.join(blocks)
    kept, used = list[str](), len(f"... {len(blocks):,} {more} left out")
    for block in blocks:
        used += len(block) + len(gap)
        if used > room:
            break
        kept.append(block)
    return gap.join([*kept, f"... {len(blocks) - len(kept):,} {more} left out"])
