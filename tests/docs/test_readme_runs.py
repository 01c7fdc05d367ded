"""The README's commands for a kernel of one's own, run as they stand, on a C function made for it."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from keepfast.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
KERNEL = """
#include <math.h>
void rms_norm(const float *x, float *out, int m, int n) {
    for (int i = 0; i < m; i++) {
        double sum = 0;
        for (int j = 0; j < n; j++) sum += (double)x[i * n + j] * x[i * n + j];
        float scale = (float)(1.0 / sqrt(sum / n + 1e-6));
        for (int j = 0; j < n; j++) out[i * n + j] = x[i * n + j] * scale;
    }
}
"""


def commands() -> list[list[str]]:
    """The block under "Your own kernel", a list of words a command."""
    text = (ROOT / "README.md").read_text()
    block = text[text.index("## Your own kernel") :]
    block = block[: block.index("`init --from`")]
    joined = re.sub(r"\\\n\s*", " ", block)
    return [shlex.split(line, comments=True)[1:] for line in joined.splitlines() if line.startswith("    keepfast ")]


def call(words: list[str]) -> int:
    with pytest.raises(SystemExit) as ended:
        main(words)
    return int(ended.value.code or 0)


@pytest.mark.usefixtures("walled")
def test_the_commands_up_to_the_first_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "norm.c").write_text(KERNEL)
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "start"]):
        subprocess.run([*git, *words], check=True)
    first, second, check, *rest = commands()
    assert [first[0], second[0], check[0], *(r[0] for r in rest)] == ["init", "init", "check", "run", "log", "report", "finalize"]
    assert call(first) == 0
    assert call(second) == 0
    assert call(check) == 0
    said = capsys.readouterr().out
    assert "same as before, not proven right" in said
    assert "verdict  keep: start" in said
