"""The chooser: which page for which card, language and model; the cut; pages that come with keepfast are readable."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.context import CHARACTERS, Device, Need, answers, choose, read, tokens
from keepfast.context.choose import LEAST, wanted
from keepfast.context.pages import Sheet, parse
from keepfast.errors import KeepfastError, UsageError

BODY = "# {title}\n\nA first paragraph.\n\n" + "\n\n".join(f"Paragraph {i} has some words in it." for i in range(40))


def sheet(name: str, applies: str, title: str = "") -> Sheet:
    kind = {"hardware": "hardware", "models": "model", "languages": "language"}[name.split("/")[0]]
    head = f"---\ntitle: {title or name}\nkind: {kind}\napplies: {applies}\nsure: measured\n---\n"
    return parse(f"{name}.md", head + BODY.format(title=title or name))


SHEETS = (
    sheet("hardware/ampere", "8.0-8.7"),
    sheet("hardware/blackwell", "10.x"),
    sheet("hardware/h200", "H200, H200 NVL"),
    sheet("hardware/hopper", "sm_90"),
    sheet("hardware/rtx4090", "RTX 4090"),
    sheet("models/mla", "mla, latent attention"),
    sheet("models/v4", "deepseek-v4, compressed sparse attention"),
    sheet("languages/triton", "triton"),
    sheet("languages/cuda", "cuda"),
)


def names(need: Need) -> list[str]:
    return [s.name.removesuffix(".md") for s in wanted(need, SHEETS)]


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        (Device("NVIDIA H200"), ["hardware-h200", "hardware-hopper"]),
        (Device("H200"), ["hardware-h200", "hardware-hopper"]),
        (Device("NVIDIA H100 80GB HBM3"), ["hardware-hopper"]),
        (Device("NVIDIA GH200 480GB"), ["hardware-hopper"]),
        (Device("NVIDIA A100-SXM4-80GB"), ["hardware-ampere"]),
        (Device("NVIDIA GeForce RTX 3090"), ["hardware-ampere"]),
        (Device("NVIDIA GeForce RTX 4090"), ["hardware-rtx4090"]),
        (Device("NVIDIA GeForce RTX 4090 Laptop GPU"), []),
        (Device("NVIDIA B200"), ["hardware-blackwell"]),
        (Device("NVIDIA GB200"), ["hardware-blackwell"]),
        (Device("a card of tomorrow", (9, 0)), ["hardware-hopper"]),
        (Device("a card of tomorrow"), []),
        (Device("8.7", (8, 7)), ["hardware-ampere"]),
    ],
)
def test_pages_of_a_card(device: Device, expected: list[str]) -> None:
    assert names(Need(device, gpu=True)) == expected


def test_a_task_of_the_cpu_gets_no_page_of_a_card() -> None:
    need = Need(Device("NVIDIA H200"), False, ("c",), "softmax")
    assert names(need) == []
    assert choose(need, sheets=SHEETS).warning == ""


def test_languages_and_models_follow_the_card() -> None:
    need = Need(Device("H200"), True, ("triton",), "DeepSeek-V4: compressed sparse attention over MLA")
    assert names(need) == ["hardware-h200", "hardware-hopper", "language-triton", "model-v4", "model-mla"]
    assert names(Need(text="formula")) == [], "a keyword is a whole word"


def test_without_a_page_for_the_card_that_is_said_first() -> None:
    assert choose(Need(Device("NVIDIA Q1"), True), sheets=SHEETS).text.startswith("NO PAGE FOR THE CARD: there is none for `NVIDIA Q1`")
    assert choose(Need(None, True, ("triton",)), sheets=SHEETS).text.startswith("NO PAGE FOR THE CARD")
    assert "only for its generation" in choose(Need(Device("NVIDIA H100"), True), sheets=SHEETS).warning
    assert choose(Need(Device("NVIDIA H200"), True), sheets=SHEETS).warning == ""


def test_the_cut_is_shown_and_the_card_comes_first() -> None:
    need = Need(Device("H200"), True, ("triton",), "mla")
    whole = choose(need, sheets=SHEETS)
    assert whole.cuts == ()
    assert not any(s.cut for s in whole.sheets)
    small = choose(need, 700, SHEETS)
    assert [s.name for s in small.sheets] == ["hardware-h200.md", "hardware-hopper.md"]
    assert small.sheets[1].cut
    assert re.search(r"\.\.\. \d+ more lines of this page left out", small.text)
    assert "left out to stay within the budget: language-triton.md, languages/triton (about " in small.text


@given(st.integers(LEAST, 4000))
def test_the_budget_is_kept(most: int) -> None:
    need = Need(Device("H200" * 30, (9, 0)), True, ("triton", "cuda"), "mla deepseek-v4")
    assert choose(need, most, SHEETS).tokens <= most
    assert len(choose(need, most, SHEETS).text) <= most * CHARACTERS


def test_a_page_is_not_cut_within_code() -> None:
    body = "# x\n\nwords\n\n```python\na = 1\n\n" + "b = 2\n\n" * 400 + "```\n"
    page = parse("languages/x.md", f"---\ntitle: x\nkind: language\napplies: x\n---\n{body}")
    assert choose(Need(languages=("x",)), LEAST, (page,)).text.count("```") % 2 == 0


def test_too_small_a_budget_is_refused() -> None:
    with pytest.raises(UsageError):
        choose(Need(), LEAST - 1, SHEETS)


@pytest.mark.parametrize("text", ["no front matter", "---\ntitle: x\n---\n", "---\ntitle: x\nkind: opinion\napplies: y\n---\n"])
def test_a_page_that_cannot_be_read_says_which(text: str) -> None:
    with pytest.raises(KeepfastError, match=r"hardware/x\.md"):
        parse("hardware/x.md", text)


def test_answers_are_exact_sentences_of_the_pages() -> None:
    page = "# H200\n\n- The H200 has **no** `tcgen05`;\n  use `wgmma`. It has 132\nmultiprocessors.\n| L2 | 50 MiB |\n"
    assert answers(page, "The H200 has no tcgen05; use wgmma.")
    assert answers(page, "It has 132 multiprocessors.")
    assert not answers(page, "The H200 has tcgen05")
    assert not answers(page, "t has 132 multiprocessors.")
    assert not answers(page, "")


def test_the_pages_that_come_with_keepfast() -> None:
    sheets = read()
    assert len({s.name for s in sheets}) == len(sheets)
    for one in sheets:
        assert one.text.startswith("# ")
        assert one.tokens == tokens(one.text)
    chosen = choose(Need(Device("NVIDIA H200"), True, ("triton", "cuda", "cute"), "deepseek-v4 nvfp4"))
    assert chosen.warning == ""
    assert chosen.tokens <= 12_000


@pytest.mark.parametrize("card", ["NVIDIA H200", "NVIDIA B200", "NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 5090"])
def test_each_card_that_was_promised_has_its_page_and_its_generation(card: str) -> None:
    chosen = choose(Need(Device(card), True))
    assert len(chosen.sheets) == 2
    assert chosen.warning == ""
