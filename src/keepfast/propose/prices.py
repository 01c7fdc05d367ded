"""What tokens cost: a dated table, in which a model that is not listed costs `unknown`.

Owns the table and the sum. An agent's own report of dollars comes before it. Must not know who asked for the tokens. Where a bill has a
part that is not told, the sum is the most that it can be: money is a hard stop.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from pathlib import Path

import msgspec
from msgspec import Struct

from keepfast.errors import UsageError
from keepfast.propose.agent import Usage

MILLION = 1e6


class Price(Struct, frozen=True, forbid_unknown_fields=True):
    """Dollars for a million tokens.

    cached   input that was read from a cache; None: not published
    written  input that is put into a cache, where that costs more: how much of it was, no agent tells, so all of it counts as that
    below    tokens of input up to which a request has this price; a longer one costs more, and what is not known here
    date     on which the source said so
    """

    input: float
    output: float
    cached: float | None = None
    written: float | None = None
    below: int | None = None
    date: str = ""
    source: str = ""


Table = dict[str, Price]


def price(model: str, usage: Usage, known: Table | None = None) -> float | None:
    """Dollars of a turn: the agent's own figure, else by the table; None when nobody knows."""
    if usage.dollars is not None:
        return usage.dollars
    found = _entry(model, table() if known is None else known)
    return None if found is None else cost(found, usage)


def cost(at: Price, usage: Usage) -> float | None:
    """Dollars of the tokens; None for cached ones without a price, and for requests that are longer on average than the price is for.
    A CLI that does not tell its requests is taken to keep them short: its workspace holds a kernel and a brief.
    """
    if (usage.cached_tokens and at.cached is None) or (at.below and usage.input_tokens > at.below * usage.requests > 0):
        return None
    fresh = max(0, usage.input_tokens - usage.cached_tokens)
    return (fresh * max(at.input, at.written or 0.0) + usage.cached_tokens * (at.cached or 0.0) + usage.output_tokens * at.output) / MILLION


def _entry(model: str, known: Table) -> Price | None:
    """The entry of the model, or the longest one that its name begins with, up to a date or a tag: `m-2026-01-01` is an `m`."""
    matches = [name for name in known if model == name or model.startswith((f"{name}-2", f"{name}@", f"{name}:"))]
    return known[max(matches, key=len)] if matches else None


@cache
def table() -> Table:
    """The table that ships with keepfast."""
    return parse(files("keepfast.propose").joinpath("prices.toml").read_text(encoding="utf-8"), "prices.toml")


def read(path: Path) -> Table:
    """A table of the user's; its entries come before ours."""
    return table() | parse(path.read_text(encoding="utf-8"), str(path))


def parse(text: str, where: str) -> Table:
    """UsageError for a table that is not one: a price that was misread would be spent."""
    try:
        models = tomllib.loads(text).get("models", {})
        found = {name: msgspec.convert(_dated(entry), Price) for name, entry in models.items()}
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, AttributeError, TypeError, ValueError) as error:
        raise UsageError(f"is no table of prices: {error}", where=where, next_step='[models."NAME"] with input, output, cached') from None
    if bad := [name for name, p in found.items() if min(p.input, p.output, p.cached or 0.0, p.written or 0.0, p.below or 0) < 0]:
        raise UsageError(f"the price of {bad[0]} is below 0", where=where, next_step="dollars for a million tokens")
    return found


def _dated(entry: dict[str, object]) -> dict[str, object]:
    return entry | ({"date": str(entry["date"])} if "date" in entry else {})
