"""The crew: agents by name get the real brief of the run, and a list with agents is understood by `keepfast run`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from keepfast import loop, model
from keepfast.crew import crew_of, nobody
from keepfast.errors import UsageError
from keepfast.ledger import Ledger
from keepfast.propose.command import cage
from keepfast.propose.sequence import named
from keepfast.repo import Repo
from keepfast.testing import RecordedJudge, ScriptedAgent, edit, keep, reject, revert
from tests.loop import kit


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(Repo.find(kit.repository(tmp_path)).ensure_state()) as opened:
        yield opened


def test_agents_get_the_brief_of_the_run(tmp_path: Path, ledger: Ledger) -> None:
    where = tmp_path / "tasks/soft max é"
    (where / "reference.py").write_text("def reference(x): return x\n")
    ledger.add_idea("soft max é", "keep the row in registers")
    agent = ScriptedAgent("claude", lambda job, n: edit("kernel/kernel.c", f"int kernel(void) {{ return {n}; }}\n".encode(), title="mine"))
    verdicts = [keep(1.2), reject(detail="row 17: got `0.0`"), revert()]
    session = kit.session(where, ledger, (), RecordedJudge(verdicts), task_=kit.task(where, budget=model.Budget(4, dollars=5.0)))
    crew = replace(crew_of(ledger, session.run), hire=lambda name: agent)
    loop.run(replace(session, proposer=named("deck,search,claude", crew=crew)))
    first, _, third = agent.jobs
    assert "row softmax" in first.brief
    assert "keep the row in registers" in first.brief
    assert "row 17" in third.brief
    assert str(tmp_path) not in third.brief
    assert [f.path for f in third.readable] == ["reference.py"]


@pytest.mark.parametrize(
    ("text", "match"),
    [("deck,nobody,claude", "unknown proposer `nobody`"), ("claude,chat:", "names no model"), ("claude,claude", "twice")],
)
def test_names_are_looked_at_before_anything_is_set_up(text: str, match: str) -> None:
    with pytest.raises(UsageError, match=match):
        named(text, crew=nobody())


def test_who_is_hired(tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cage, "find_cage", lambda path: cage.Plain())
    session = kit.session(tmp_path / "tasks/soft max é", ledger, (), RecordedJudge([]))
    hired = crew_of(ledger, session.run).hire
    names = "codex", "chat:m@http://127.0.0.1:1/v1", "anthropic:m"
    assert [hired(n).name for n in names] == list(names)
    assert named(",".join(names), crew=nobody()).name == ",".join(names)
