"""Which compute capability a card has, by its name: for runs whose record names the card only. Must not know pages or drivers."""

from __future__ import annotations

import re

from msgspec import Struct

Capability = tuple[int, int]

# Words of the name, in order; the first row that fits counts.
CAPABILITIES: tuple[tuple[str, Capability], ...] = (
    ("gb10", (12, 1)), ("rtx pro blackwell", (12, 0)), ("rtx 50##", (12, 0)),
    ("b300", (10, 3)), ("gb300", (10, 3)), ("b200", (10, 0)), ("gb200", (10, 0)), ("b100", (10, 0)),
    ("h100", (9, 0)), ("h200", (9, 0)), ("h800", (9, 0)), ("h20", (9, 0)), ("gh200", (9, 0)),
    ("l4", (8, 9)), ("l40", (8, 9)), ("l40s", (8, 9)), ("rtx ada", (8, 9)), ("rtx 40##", (8, 9)),
    ("a100", (8, 0)), ("a800", (8, 0)), ("a30", (8, 0)),
    ("a2", (8, 6)), ("a10", (8, 6)), ("a10g", (8, 6)), ("a16", (8, 6)), ("a40", (8, 6)), ("rtx a####", (8, 6)), ("rtx 30##", (8, 6)),
    ("t4", (7, 5)), ("rtx 20##", (7, 5)), ("v100", (7, 0)), ("gtx 10##", (6, 1)),
)  # fmt: skip
LESSER = frozenset({"laptop", "mobile", "d"})  # words that make another chip of a card's name


class Device(Struct, frozen=True):
    """The card that pages are chosen for. `name` as the driver says it, or a short one (`H200`)."""

    name: str
    capability: Capability | None = None  # None: by its name

    @property
    def cc(self) -> Capability | None:
        return self.capability or next((cc for words, cc in CAPABILITIES if _fits(words, self.name)), None)


def words(text: str) -> tuple[str, ...]:
    """`text` in lower case, split at everything that is neither a letter nor a digit."""
    return tuple(re.findall(r"[a-z0-9]+", text.lower()))


def holds(text: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    """Whether `wanted` stands in `text`, one word after the other."""
    size = len(wanted)
    return size > 0 and any(text[i : i + size] == wanted for i in range(len(text) - size + 1))


def is_card(name: str, pattern: str) -> bool:
    """Whether a page of the card `pattern` is one of the card `name`: a laptop's `RTX 4090` is another chip."""
    have, want = words(name), words(pattern)
    return holds(have, want) and not (LESSER & set(have)) - set(want)


def _fits(pattern: str, name: str) -> bool:
    """All words of the pattern in their order, others between them allowed; `#` is a digit, a letter may follow (`4070ti`)."""
    rest = iter(re.sub(r"(?<=\d)(ti|super)$", "", word) for word in words(name))
    return all(any(re.fullmatch(part.replace("#", r"\d"), word) for word in rest) for part in pattern.split())
