"""What a conversation was billed for so far, for CLIs that tell its running total. One small file; a lost one counts from nothing."""

from __future__ import annotations

from pathlib import Path

import msgspec

from keepfast.propose.command import secrecy

Tokens = tuple[int, int, int]  # input, output, cached
NOTHING: Tokens = (0, 0, 0)
KEPT = 1000  # conversations


def read(path: Path) -> dict[str, Tokens]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Tokens])
    except (OSError, msgspec.DecodeError):
        return {}


def write(path: Path, billed: dict[str, Tokens]) -> None:
    secrecy.write(path.parent, path.name, msgspec.json.encode(dict([*billed.items()][-KEPT:])))
