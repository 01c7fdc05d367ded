"""What tests of the redteam share: one set of answers for the session, and small corpora."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from keepfast.redteam.attempt import Answers
from keepfast.redteam.entries import folders
from keepfast.walls.base import Walls

Corpus = Callable[..., Path]

HONEST_TOML = """\
# id: L99
# family: compliance
# language: triton
# task: none
# expect: pass
# like: C03q
# does: a kernel of its own

languages = ["triton"]
source = "import triton\\n\\n\\n@triton.jit\\ndef mine(x):\\n    pass\\n"

[[kernels]]
name = "mine"
share = 1.0
"""
CHEAT_TOML = """\
# id: C99
# family: compliance
# language: torch
# task: none
# expect: language
# layer: rules
# tries: a library in place of a kernel

languages = ["triton"]

[[kernels]]
name = "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNT"
share = 1.0
"""


@pytest.fixture(scope="session")
def walls() -> Walls:
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    found = Walls.detect()
    if found.strength != "walls":
        pytest.skip(f"the right answers are those of full walls, this machine has {found.strength} (keepfast doctor)")
    return found


@pytest.fixture(scope="session")
def answers(walls: Walls) -> Iterator[Answers]:
    with Answers(folders(), walls, quick=True) as made:
        yield made


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    """Writes `cheats/origin/NAME.toml` and the like, from texts by path; its folder."""

    def make(**texts: str) -> Path:
        for name, text in texts.items():
            path = tmp_path / "corpus" / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.with_suffix(".toml").write_text(text)
        return tmp_path / "corpus"

    return make
