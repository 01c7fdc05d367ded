"""Questions that a coding model gets wrong without the pages: the set that it is handed for this card, model and language answers each."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from keepfast.context import Device, Need, answers, choose

QUESTIONS = tomllib.loads(Path(__file__).with_name("quiz.toml").read_text(encoding="utf-8"))["question"]


def handed(question: dict[str, str], device: str | None = None) -> str:
    """The pages that an agent gets, by the chooser's own budget."""
    name = question["device"] if device is None else device
    need = Need(Device(name) if name else None, bool(name), (question["language"],), question.get("text", ""))
    return choose(need).text


@pytest.mark.parametrize("question", QUESTIONS, ids=[q["ask"] for q in QUESTIONS])
def test_the_pages_answer(question: dict[str, str]) -> None:
    assert answers(handed(question), question["says"])


def test_there_are_enough_and_of_all_kinds() -> None:
    assert len(QUESTIONS) >= 20
    assert len({q["ask"] for q in QUESTIONS}) == len({q["says"] for q in QUESTIONS}) == len(QUESTIONS)
    assert {q["language"] for q in QUESTIONS} == {"triton", "cuda", "cute", "c"}
    assert len({q["device"] for q in QUESTIONS}) >= 7
    assert sum("text" in q for q in QUESTIONS) >= 5


def test_pages_of_another_card_do_not_answer() -> None:
    """What is true of the card is on its own pages, not on all of them."""
    of_the_card = [q for q in QUESTIONS if q["device"] in ("NVIDIA GeForce RTX 5090", "NVIDIA B200") and "text" not in q]
    assert of_the_card
    assert [q["ask"] for q in of_the_card if answers(handed(q, "NVIDIA A100-SXM4-80GB"), q["says"])] == []
