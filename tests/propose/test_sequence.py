"""One proposer after the other, and their names on the command line."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from msgspec import Struct

from keepfast.errors import UsageError
from keepfast.model import Files, Proposal
from keepfast.propose import sequence
from keepfast.propose.base import Brief
from keepfast.propose.deck import DeckProposer
from keepfast.propose.search import SearchProposer
from keepfast.propose.sequence import Sequence, named


class Fixed(Struct, frozen=True):
    """Proposes until the history is so long."""

    name: str
    until: int

    def propose(self, brief: Brief) -> Proposal | None:
        return Proposal("t", self.name, Files(())) if len(brief.history) < self.until else None


def test_the_first_that_has_something_speaks(make: SimpleNamespace) -> None:
    sequence = Sequence((Fixed("a", 2), Fixed("b", 4)))
    history: tuple[object, ...] = ()
    said = []
    while (found := sequence.propose(Brief(make.task(), make.candidate(), history))) is not None:  # type: ignore[arg-type]
        said.append(found.proposer)
        history = (*history, None)
    assert said == ["a", "a", "b", "b"]
    assert sequence.name == "a,b"


def test_names() -> None:
    assert named("deck") == DeckProposer()
    assert named("random", trials=9) == SearchProposer("random", 9)
    assert named("deck, search") == Sequence((DeckProposer(), SearchProposer()))


def test_an_unknown_name_gets_the_nearest_and_the_known() -> None:
    with pytest.raises(UsageError, match=r"unknown proposer `serch`. Did you mean `search`\?\n  known: deck, search, random"):
        named("deck,serch")


def test_a_package_can_offer_a_proposer(monkeypatch: pytest.MonkeyPatch) -> None:
    class Entry:
        name = "mine"

        def load(self) -> type[DeckProposer]:
            return DeckProposer

    monkeypatch.setattr(sequence, "entry_points", lambda group: [Entry()] if group == "keepfast.proposers" else [])
    assert sequence.named("mine") == DeckProposer()
    with pytest.raises(UsageError, match="Did you mean `mine`"):
        sequence.named("mines")
