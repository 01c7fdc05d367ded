"""The pages: form and length, that each fact says how sure it is, that derived numbers are right, that they are packaged."""

from __future__ import annotations

import re
import subprocess
from itertools import product
from pathlib import Path

import pytest

from keepfast.context import Device, Need, choose, read, tokens
from tests.context.kit import FOLDER, page

NAMES = {
    "hardware": {"ampere", "ada", "hopper", "blackwell-datacenter", "blackwell-consumer", "h200", "b200", "rtx-4090", "rtx-5090"},
    "models": {"mla", "deepseek-sparse-attention", "deepseek-v4-attention", "nvfp4"},
    "languages": {"triton", "cuda", "cute", "c"},
}
PAGES = [f"{kind}/{name}" for kind, names in NAMES.items() for name in sorted(names)]
FACTS = [p for p in PAGES if not p.startswith("languages/")]
CARDS = {
    "NVIDIA H200": "hopper", "NVIDIA H100 80GB HBM3": "hopper", "NVIDIA B200": "blackwell-datacenter", "NVIDIA GeForce RTX 4090": "ada",
    "NVIDIA GeForce RTX 5090": "blackwell-consumer", "NVIDIA A100-SXM4-80GB": "ampere", "NVIDIA GeForce RTX 3090": "ampere",
}  # fmt: skip
MOST = 1500  # tokens of a page
MOST_OF_A_SET = 6000  # of one card, one model with its reference, one language


def body(name: str) -> str:
    return page(name).split("---\n", 2)[2]


def statements(name: str) -> list[str]:
    """The bullets of a page, each with the lines that go on with it; code and tables left out."""
    text = re.sub(r"^(```.*?^```|    .*?)$", "", body(name), flags=re.MULTILINE | re.DOTALL)
    return [" ".join(found.split()) for found in re.findall(r"^- .*(?:\n  \S.*)*", text, re.MULTILINE)]


def test_all_are_there_and_no_other() -> None:
    assert {kind: {p.stem for p in (FOLDER / kind).glob("*.md")} for kind in NAMES} == NAMES


@pytest.mark.parametrize("name", PAGES)
def test_front_matter(name: str) -> None:
    text = page(name)
    assert text.startswith("---\n")
    head = dict(line.split(": ", 1) for line in text.split("---\n", 2)[1].splitlines())
    assert list(head) == ["title", "kind", "applies", "sure"]
    assert head["kind"] == {"hardware": "hardware", "models": "model", "languages": "language"}[name.split("/")[0]]
    assert body(name).lstrip().startswith("# ")


@pytest.mark.parametrize("name", PAGES)
def test_form(name: str) -> None:
    text = page(name)
    assert tokens(text) <= MOST
    assert text.count("```") % 2 == 0
    assert [line for line in text.splitlines() if len(line) > 150 or line != line.rstrip()] == []
    assert "/root" not in text
    assert "/work" not in text


@pytest.mark.parametrize("name", PAGES)
def test_nothing_unverified(name: str) -> None:
    text = page(name).lower()
    assert [w for w in ("[u]", "unverified", "unknown", "probably", "i think", "should be around") if w in text] == []


@pytest.mark.parametrize("name", FACTS)
def test_every_fact_says_how_sure_it_is(name: str) -> None:
    found = statements(name)
    assert len(found) >= 4
    assert [s for s in found if not re.search(r"\[[VSDM]\]", s)] == []
    used = set(re.findall(r"\[([VSDM])\]", body(name)))
    explained = set(re.findall(r"\[([VSDM])\]", page(name).split("---\n", 2)[1]))
    assert used == explained, "the front matter explains the marks that are used, and no others"


@pytest.mark.parametrize("name", ["ampere", "ada", "hopper", "blackwell-datacenter", "blackwell-consumer"])
def test_each_generation_says_what_it_does_not_have(name: str) -> None:
    text = body(f"hardware/{name}")
    assert "## What it does not have, and what to use instead" in text
    for word in ("wgmma", "tcgen05", "FP8", "48 KiB", "opt-in" if name == "blackwell-datacenter" else "`cudaFuncSetAttribute`"):
        assert word in text, word


@pytest.mark.parametrize("name", sorted(NAMES["models"]))
def test_each_model_has_a_short_reference(name: str) -> None:
    path = FOLDER / "models" / f"{name.replace('-', '_')}.py"
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 60
    assert path.name in body(f"models/{name}")


# ---- which page for what, and how long a set is


@pytest.mark.parametrize(("card", "generation"), CARDS.items())
def test_pages_of_cards(card: str, generation: str) -> None:
    names = [s.name for s in choose(Need(Device(card), gpu=True)).sheets]
    assert names[-1] == f"hardware-{generation}.md"
    own = {"H200": "h200", "B200": "b200", "4090": "rtx-4090", "5090": "rtx-5090"}
    assert names[:-1] == [f"hardware-{page}.md" for word, page in own.items() if card.endswith(word)]


def test_a_whole_set_is_short() -> None:
    keywords = [s.applies[0] for s in read() if s.kind == "model"]
    for card, keyword, language in product(CARDS, keywords, ("triton", "cuda", "cute")):
        found = choose(Need(Device(card), gpu=True, languages=(language,), text=keyword), 50_000)
        assert not found.cuts
        assert found.tokens <= MOST_OF_A_SET, (card, keyword, language)
    assert len(choose(Need(languages=("c",))).sheets) == 1


# ---- numbers

DERIVED = [
    ("hardware/h200", "989 / 4.8 = 206", 989 / 4.8, 206),
    ("hardware/h200", "268 MB cannot take less than 60 us", 268.4e6 / 4453e9 * 1e6, 60),
    ("hardware/b200", "2,250 / 7.67 = 293", 2250 / 7.67, 293),
    ("hardware/b200", "7,680 bits x 3,996 MHz x 2", 7680 / 8 * 3.996 * 2, 7672),
    ("hardware/rtx-4090", "165 / 1.008 = 164", 165 / 1.008, 164),
    ("hardware/rtx-5090", "209.5 / 1.792 = 117", 209.5 / 1.792, 117),
    ("hardware/rtx-5090", "| float16, dense | 209.5 ", 512 * 170 * 2.407e9 / 1e12, 209.5),
    ("hardware/ampere", "153 FLOP a byte", 312 / 2.039, 153),
    ("hardware/blackwell-consumer", "1/6.6 of a 5090", 1792 / 273, 6.6),
    ("hardware/blackwell-datacenter", "256 KiB a multiprocessor", 128 * 512 * 4 / 1024, 256),
    ("hardware/hopper", "256 a thread of one warpgroup", 64 * 512 / 128, 256),
    ("models/mla", "are 8.58 GiB", 576 * 2 * 61 * 131072 / 2**30, 8.58),
    ("models/mla", "242 FLOP a byte at 128 heads", 2 * 128 * (576 + 512) / 1152, 242),
    ("models/mla", "425 with the 656-byte", 2 * 128 * (576 + 512) / 656, 425),
    ("models/mla", "656 bytes a token", 512 + 4 * 4 + 64 * 2, 656),
    ("models/deepseek-sparse-attention", "124 FLOP a byte", 2 * 64 * 128 / 132, 124),
    ("models/deepseek-sparse-attention", "S > 10,178", 2048 * 656 / 132, 10178),
    ("models/deepseek-v4-attention", "584 bytes = 448", 448 + 64 * 2 + 7 + 1, 584),
    ("models/deepseek-v4-attention", "68 bytes", 128 / 2 + 128 / 32, 68),
    ("models/deepseek-v4-attention", "stand for 2048 tokens", 512 * 4, 2048),
    ("models/nvfp4", "4.5 bits a value", 4 + 8 / 16, 4.5),
    ("models/nvfp4", "128 rows x 4 scales, 512 bytes", 128 * 4, 512),
]


@pytest.mark.parametrize(("name", "said", "value", "printed"), DERIVED)
def test_derived_numbers(name: str, said: str, value: float, printed: float) -> None:
    assert said in " ".join(page(name).split())
    assert value == pytest.approx(printed, rel=0.006)


# ---- the wheel


def test_pages_are_packaged() -> None:
    """The wheel holds all of src/keepfast that git does not ignore."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        pytest.skip("not a git repository")
    files = [str(p.relative_to(root)) for p in FOLDER.rglob("*") if p.suffix in (".md", ".py")]
    done = subprocess.run(["git", "check-ignore", *files], cwd=root, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert 'packages = ["src/keepfast"]' in (root / "pyproject.toml").read_text(encoding="utf-8")
