"""Prices: a dated table, and `unknown` where it is silent."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest

from keepfast.errors import UsageError
from keepfast.propose import prices
from keepfast.propose.agent import Usage

TABLE = prices.parse(
    """
    [models."small-1"]
    input = 1.0
    cached = 0.1
    output = 4.0
    date = 2026-11-30
    [models."small-1-2026-09-01"]
    input = 2.0
    output = 8.0
    """,
    "a test",
)


@pytest.mark.parametrize(
    ("model", "usage", "dollars"),
    [
        ("small-1", Usage(1_000_000, 100_000), 1.4),
        ("small-1", Usage(1_000_000, 0, cached_tokens=400_000), 0.64),
        ("small-1-2026-11-11", Usage(1_000_000, 0), 1.0),
        ("small-1-2026-09-01", Usage(1_000_000, 0), 2.0),
        ("small-1-2026-09-01", Usage(1_000_000, 0, cached_tokens=1), None),  # no published price for cached input
        ("small-1-mini", Usage(1_000_000, 0), None),  # another model, though its name begins alike
        ("unheard-of", Usage(1, 1), None),
        ("unheard-of", Usage(1, 1, dollars=0.25), 0.25),  # its own report comes first
        ("small-1", Usage(), 0.0),
    ],
)
def test_price(model: str, usage: Usage, dollars: float | None) -> None:
    found = prices.price(model, usage, TABLE)
    assert found == (None if dollars is None else pytest.approx(dollars))


def test_the_table_that_ships_guesses_nothing() -> None:
    assert prices.price("no-such-model", Usage(10, 10)) is None
    assert prices.price("claude-opus-5-5-fast", Usage(10, 10)) is None


def test_makers_whose_clis_tell_no_dollars_are_in_the_table() -> None:
    """Codex and Gemini CLI tell tokens only: without a price their turns would all be unknown."""
    assert {name.partition("-")[0] for name in prices.table()} >= {"gpt", "gemini", "claude"}


@pytest.mark.parametrize("name", prices.table())
def test_every_price_that_ships_is_dated_and_plausible(name: str) -> None:
    found = prices.table()[name]
    assert date(2026, 1, 1) <= date.fromisoformat(found.date) <= date.today()
    assert re.fullmatch(r"[A-Z][A-Za-z]+, [a-z.]+/\S+", found.source)
    assert found.cached is not None
    assert 0 < found.cached < found.input <= (found.written or found.input) <= found.output
    assert found.below is None or found.below >= 100_000


WRITTEN = prices.Price(2.0, 10.0, 0.1, written=2.5, below=1000)


@pytest.mark.parametrize(
    ("usage", "dollars"),
    [
        (Usage(1_000_000, 0), 2.5),  # all of it may have been put into a cache
        (Usage(1_000_000, 0, cached_tokens=1_000_000), 0.1),
        (Usage(1000, 0, requests=1), 0.0025),
        (Usage(1001, 0, requests=1), None),  # longer than the price is for
        (Usage(1001, 0, requests=2), 0.0025025),
    ],
)
def test_a_bill_is_never_higher_than_the_sum(usage: Usage, dollars: float | None) -> None:
    assert prices.cost(WRITTEN, usage) == (None if dollars is None else pytest.approx(dollars))


def test_a_table_of_the_users_comes_first(tmp_path: Path) -> None:
    (tmp_path / "prices.toml").write_text('[models."mine"]\ninput = 0\noutput = 0\n')
    assert prices.price("mine", Usage(10, 10), prices.read(tmp_path / "prices.toml")) == 0.0


@pytest.mark.parametrize(
    "text",
    [
        "[models.a]\ninput = 1",
        '[models.a]\ninput = "x"\noutput = 1',
        "[models.a]\ninput = -1\noutput = 1",
        "models = 3",
        "[",
        "[models]\na = 1",
    ],
)
def test_a_table_that_is_none(text: str) -> None:
    with pytest.raises(UsageError, match="a test: "):
        prices.parse(text, "a test")
