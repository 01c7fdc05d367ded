"""The pages that come with keepfast, read: what is in their front matter, whom they are for, how long they are.

    ---
    title: H200
    kind: hardware               hardware | model | language
    applies: H200, 9.0           names of cards and capabilities (9.0, 8.0-8.7, 10.x); keywords of a model; names of languages
    sure: measured               where its numbers come from
    tokens: 1200                 may be there, for readers; the length is measured
    ---

A `.py` of the same name beside it is shown at its end. Owns the format. Must not know which page is handed to whom.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from keepfast.context.cards import Capability, Device, holds, is_card, words
from keepfast.errors import KeepfastError

FOLDER = Path(__file__).parent
KINDS = ("hardware", "model", "language")
CHARACTERS = 3.6  # of a token, in English and in code


def tokens(text: str) -> int:
    """An estimate, for every model alike: characters / 3.6, rounded up."""
    return math.ceil(len(text) / CHARACTERS)


class Sheet(Struct, frozen=True):
    """One page. `text` is what an agent reads: a title, how sure it is, the page without its front matter."""

    name: str  # of the file that an agent gets: hardware-h200.md
    kind: str
    title: str
    applies: tuple[str, ...]
    sure: str
    text: str
    cut: bool = False  # the end is missing, and the text says so

    @property
    def tokens(self) -> int:
        return tokens(self.text)

    def of_card(self, device: Device) -> bool:
        """A page of this very card, not of its generation only."""
        return self.kind == "hardware" and any(_span(a) is None and is_card(device.name, a) for a in self.applies)

    def of_generation(self, device: Device) -> bool:
        spans = [span for a in self.applies if (span := _span(a))]
        cc = device.cc
        return self.kind == "hardware" and cc is not None and any(low <= cc <= high for low, high in spans)

    def of_language(self, names: tuple[str, ...]) -> bool:
        return self.kind == "language" and any(words(a) == words(name) for a in self.applies for name in names)

    def hits(self, text: tuple[str, ...]) -> int:
        """How many keywords of a model's page stand in these words."""
        return sum(holds(text, words(a)) for a in self.applies) if self.kind == "model" else 0


def read(folder: Path = FOLDER) -> tuple[Sheet, ...]:
    """All pages below `folder`, by kind and name. KeepfastError for one that cannot be read."""
    found = [path for kind in ("hardware", "models", "languages") for path in sorted((folder / kind).glob("*.md"))]
    return tuple(_with_code(parse(f"{p.parent.name}/{p.name}", p.read_text(encoding="utf-8")), p) for p in found)


def parse(where: str, text: str) -> Sheet:
    """A page from its file's text; `where` is `hardware/h200.md`."""
    found = re.match(r"---\n(.*?)\n---\n(.*)", text.replace("\r\n", "\n"), re.DOTALL)
    if found is None:
        raise KeepfastError("has no front matter", where=where, next_step="begin it with --- and key: value lines")
    said = {k.strip(): _plain(v) for line in found[1].splitlines() for k, colon, v in [line.partition(":")] if colon}
    kind = said.get("kind", "").removesuffix("s")
    if kind not in KINDS or not said.get("title") or not said.get("applies"):
        step = f"it needs title, applies, and kind: one of {', '.join(KINDS)}"
        raise KeepfastError("its front matter is not complete", where=where, next_step=step)
    applies = tuple(a for part in said["applies"].strip("[]").split(",") if (a := _plain(part)))
    name = f"{kind}-{Path(where).name}"
    return Sheet(name, kind, said["title"], applies, said.get("sure", ""), _shown(said["title"], said.get("sure", ""), found[2].strip()))


def _with_code(sheet: Sheet, path: Path) -> Sheet:
    """The page with the tested Python that lies beside it under its name (`nvfp4.md`, `nvfp4.py`), so that an agent has both."""
    code = path.with_name(path.stem.replace("-", "_") + ".py")
    if not code.is_file():
        return sheet
    return replace(sheet, text=f"{sheet.text}\n## {code.name}\n\n```python\n{code.read_text(encoding='utf-8').strip()}\n```\n")


def _plain(value: str) -> str:
    return value.strip().strip("\"'").strip()


def _shown(title: str, sure: str, body: str) -> str:
    head, _, rest = body.partition("\n") if body.startswith("# ") else (f"# {title}", "", body)
    return "\n\n".join(part for part in (head, f"How sure: {sure}." if sure else "", rest.strip()) if part) + "\n"


def _span(text: str) -> tuple[Capability, Capability] | None:
    """`9.0`, `sm_90`, `8.0-8.7`, `10.x` as the least and the greatest capability; None for what is no capability."""
    low, _, high = re.sub(r"\s+(?:to|-)\s+|\.\.", "-", text.strip().lower()).partition("-")
    ends = (_capability(low, 0), _capability(high or low, 9))
    return (ends[0], ends[1]) if ends[0] and ends[1] else None


def _capability(text: str, rest: int) -> Capability | None:
    found = re.fullmatch(r"(?:sm_?|cc\s*)?(\d{1,2})\.?(\d|x)[af]?", text.strip())
    return (int(found[1]), rest if found[2] == "x" else int(found[2])) if found else None
