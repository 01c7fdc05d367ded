"""The soak of agents, made short: with faults in every third turn the keeps are right, every token is counted, and nothing is left."""

from __future__ import annotations

from pathlib import Path

from tests.benchmarks.scripts import script


def test_a_short_soak(tmp_path: Path) -> None:
    found = script("agents_soak").soak(tmp_path, 12)
    assert found.experiments == 12
    assert (found.keeps_right, found.branch_right, found.judged_twice) == (True, True, 0)
    assert found.tokens_exact
    assert found.tokens[1] <= found.tokens[0], "those of a turn that no experiment follows any more are in none"
    assert found.tokens[0] > 12_000
    assert found.dollars_enough
    assert found.processes_left == 0
    assert found.files_open[0] == found.files_open[1]
    assert found.faults > 0


def test_what_a_turn_costs_besides_its_agent(tmp_path: Path) -> None:
    found = script("agents_soak").overhead(tmp_path, 3)
    assert found.turns == 3
    assert abs(found.between_s[1] - found.agent_s[1] - found.overhead_s) < 0.001
