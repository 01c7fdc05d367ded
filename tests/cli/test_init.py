"""`keepfast init` for code that exists: which options go together, and what is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Call

SOURCE = "import torch\n\n\ndef double(x: torch.Tensor, out=None) -> torch.Tensor:\n    return x * 2\n\n\ndouble(torch.ones(3))\n"


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--op", "torch.ops.aten.gelu", "--kernelbench", "p.py"), "--op and --kernelbench are two ways to make a task"),
        (("--op", "torch.ops.aten.gelu", "--case", "n=8", "--shape", "x=n"), "--op knows no --shape: it is for --from FILE.c"),
        (("--from", "ops.py:double", "--include", "x"), "--from FILE.py knows no --include"),
        (("--from", "ops.c:double", "--arg", "x=f32[n]"), "--from FILE.c knows no --arg: it is for --from FILE.py and --op"),
        (("--kernelbench", "p.py", "--oracle", "o.py:f"), "--kernelbench knows no --oracle"),
        (("--import", "os"), "these options describe a function, and none was given"),
        (("--kernelbench", "nowhere.py"), "nowhere.py does not exist"),
        (("--from", "ops.py:double"), "at least one case is needed"),
    ],
)
def test_options_that_do_not_go_together(keepfast: Call, empty: Path, words: tuple[str, ...], what: str) -> None:
    (empty / "ops.py").write_text(SOURCE)
    said = keepfast("init", "t", *words)
    assert (said.code, said.out) == (2, "")
    assert what in said.err
    assert not (empty / "tasks").exists()


def test_a_python_function_with_what_is_to_be_said(keepfast: Call, empty: Path) -> None:
    (empty / "ops.py").write_text(SOURCE)
    words = ("--from", "ops.py:double", "--case", "m=16 n=64", "--odd", "m=3 n=33")
    said = keepfast("init", "t", *words)
    assert said.code == 0
    assert "same as before, not proven right" in said.out
    assert "note: line 8 runs whenever the file is imported (`double(torch.ones(3))`)" in said.out
    found = json.loads(keepfast("init", "u", *words, "--arg", "x=f32[m,n]", "--reference", "ops.py:double", "--json").out)
    assert "not proven right" not in found["did"]
    assert [f["name"] for f in found["facts"]].count("file") == 4
