"""Which pages an agent is handed: its card's, its languages', those of the model it works for; cut to a budget, the cut shown.

Must not know tasks, runs or agents: it is told a card, languages and words.
"""

from __future__ import annotations

import re

from msgspec import Struct
from msgspec.structs import replace

from keepfast.context.cards import Device, words
from keepfast.context.pages import CHARACTERS, Sheet, read, tokens
from keepfast.errors import UsageError

TOKENS = 12_000
LEAST = 400  # tokens: a page of which less would be left is left out whole


class Need(Struct, frozen=True):
    """What pages are wanted for. `device` None: no card has a say, as on a CPU, or none is known; then `gpu` says which."""

    device: Device | None = None
    gpu: bool = False
    languages: tuple[str, ...] = ()
    text: str = ""  # where keywords of models are looked for: title, ideas, reference


class Chosen(Struct, frozen=True):
    """Pages in the order to read them in, cut to the budget; `cuts` says what is missing, `warning` that the card has no page."""

    sheets: tuple[Sheet, ...] = ()
    cuts: tuple[str, ...] = ()
    warning: str = ""

    @property
    def text(self) -> str:
        """All pages as `keepfast context` prints them."""
        parts = [self.warning, *(s.text.rstrip() for s in self.sheets), *self.cuts]
        return "\n\n".join(p for p in parts if p) + "\n" if any(parts) else ""

    @property
    def tokens(self) -> int:
        return tokens(self.text)


def choose(need: Need, most: int = TOKENS, sheets: tuple[Sheet, ...] | None = None) -> Chosen:
    """The pages for `need` in at most `most` tokens, notes on the cut included. UsageError below LEAST."""
    if most < LEAST:
        raise UsageError(f"no page fits {most} tokens", next_step=f"keepfast context --tokens {LEAST}   or more")
    ordered, warning = wanted(need, read() if sheets is None else sheets), ""
    if need.gpu:
        warning = _warning(need.device, ordered)
    return _cut(ordered, warning, int(most * CHARACTERS))


def wanted(need: Need, sheets: tuple[Sheet, ...]) -> tuple[Sheet, ...]:
    """The card's pages, its generation's, the languages', the models' (most keywords first); not cut."""
    device = need.device if need.gpu else None
    card = [s for s in sheets if device and s.of_card(device)]
    generation = [s for s in sheets if device and s not in card and s.of_generation(device)]
    languages = [s for s in sheets if s.of_language(need.languages)]
    said = words(need.text)
    models = sorted((s for s in sheets if s.hits(said)), key=lambda s: -s.hits(said))
    return (*card, *generation, *languages, *models)


def answers(pages: str, sentence: str) -> bool:
    """Whether the printed pages say exactly this sentence. Line breaks and marks of emphasis and code do not count."""
    said, asked = _flat(pages), _flat(sentence)
    return bool(asked) and re.search(rf"(?<!\w){re.escape(asked)}(?!\w)", said) is not None


def _flat(text: str) -> str:
    lines = re.sub(r"^\s*(?:[-*#>|]|\d+\.)+\s", "", text, flags=re.MULTILINE)
    return " ".join(re.sub(r"[*`]", "", lines).split())


def _warning(device: Device | None, ordered: tuple[Sheet, ...]) -> str:
    if device is None:
        return "NO PAGE FOR THE CARD: no GPU is named here. What follows says nothing about the hardware; do not guess its features."
    name = " ".join(device.name.split())[:80]
    if not any(s.kind == "hardware" for s in ordered):
        return f"NO PAGE FOR THE CARD: there is none for `{_safe(name)}`. Do not guess its features; rely on the measured ceilings only."
    if not any(s.of_card(device) for s in ordered):
        return f"There is no page for `{_safe(name)}` itself, only for its generation: sizes and rates of the card are the measured ones."
    return ""


def _safe(name: str) -> str:
    return "".join(c if c.isprintable() and c != "`" else "?" for c in name)


# --------------------------------------------------------------------------------------------- cutting


def _cut(ordered: tuple[Sheet, ...], warning: str, room: int) -> Chosen:
    """Whole pages while they fit; the first that does not is cut at a paragraph, and what is then left out is named."""
    room -= len(warning) + 3
    kept: list[Sheet] = []
    cuts: list[str] = []
    owed = sum(len(_left_out(s)) + 2 for s in ordered)  # notes on all that may yet be left out
    for sheet in ordered:
        owed -= len(_left_out(sheet)) + 2
        here = _shortened(sheet, room - owed)
        if here is None:
            cuts.append(_left_out(sheet))
            room -= len(cuts[-1]) + 2
        else:
            kept.append(here)
            room -= len(here.text) + 2
    return Chosen(tuple(kept), tuple(cuts), warning)


def _left_out(sheet: Sheet) -> str:
    return f"... left out to stay within the budget: {sheet.name}, {sheet.title} (about {sheet.tokens:,} tokens)"


def _shortened(sheet: Sheet, room: int) -> Sheet | None:
    """The page in at most `room` characters; None when so little is left that it would mislead."""
    if len(sheet.text) <= room:
        return sheet
    if room < LEAST * CHARACTERS / 2:
        return None
    parts, kept, used = sheet.text.rstrip().split("\n\n"), list[str](), 60
    while len(kept) < len(parts) and used + len(parts[len(kept)]) + 2 <= room:
        used += len(parts[len(kept)]) + 2
        kept.append(parts[len(kept)])
    while kept and ("\n\n".join(kept).count("```") % 2 or (len(kept) > 1 and kept[-1].startswith("#"))):  # within code; a bare heading
        kept.pop()
    lines = "\n\n".join(parts[len(kept) :]).count("\n") + 1
    text = "\n\n".join([*kept, f"... {lines:,} more lines of this page left out"]) + "\n"
    return replace(sheet, text=text, cut=True) if kept else None
