"""The search for the best configuration without a kernel: one that fails is noted, time ends it, and it goes on where it stopped."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from keepfast.engine.base import STOCK, Account, Lap
from keepfast.engine.best import merged, ranked
from keepfast.errors import MachineError

SCRIPT = Path(__file__).parents[2] / "benchmarks/e2e/best_config.py"
SECONDS = {STOCK: 4.0, "eager": 5.0, "sdpa_gqa": 2.0, "sdpa default": 3.0}


@pytest.fixture
def script(monkeypatch):
    spec = importlib.util.spec_from_file_location("best_config", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "best_config", module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def asked(script, monkeypatch):
    """The plans that were measured. Whatever has `flex_attention` in it takes the process with it."""
    plans = []

    class Engine:
        def __init__(self, plan, *, limit_s, said):
            self.plan = plan
            assert limit_s > 0

        def account(self, rounds):
            plans.append(self.plan)
            names = [arm.name for arm in self.plan.arms]
            if "flex_attention" in names:
                raise MachineError("ended with status -11 and no account", next_step="none")
            drift = len(plans)  # this account's machine is slower than the last one's
            laps = tuple(Lap(c.name, a, n, SECONDS[a] * drift) for c in self.plan.cells for a in names for n in range(rounds))
            return Account("transformers", "m", "x", (), (), tuple(names), self.plan.cells, (), laps, (), ())

    monkeypatch.setattr(script, "TransformersEngine", Engine)
    return plans


def run(script, out, *more):
    arms = "eager,sdpa_gqa,flex_attention,sdpa default"
    return script.main(["--model", "tiny", "--device", "cpu", "--arms", arms, "--rounds", "3", "--out", str(out), *more])


def test_a_configuration_that_ends_the_process_is_noted_and_the_others_are_ranked(script, asked, tmp_path, capsys):
    assert run(script, tmp_path, "--cells", "64x2") == 0
    assert [tuple(a.name for a in plan.arms) for plan in asked] == [
        (STOCK, "eager", "sdpa_gqa", "flex_attention"),
        (STOCK, "eager"),
        (STOCK, "sdpa_gqa"),
        (STOCK, "flex_attention"),
        (STOCK, "sdpa default"),
    ], "together, then one by one because that failed; what is compiled last"
    assert not any(plan.float32 for plan in asked)
    (cell,) = json.loads((tmp_path / "best_config.json").read_text())
    assert [(r["arm"], r["ratio"]) for r in cell["ranks"]] == [
        ("sdpa_gqa", pytest.approx(2.0)),
        ("sdpa default", pytest.approx(4 / 3)),
        (STOCK, pytest.approx(1.0)),
        ("eager", pytest.approx(0.8)),
    ]
    assert cell["failed"][-1] == "flex_attention: ended with status -11 and no account"
    assert "no account of flex_attention: ended with status -11" in capsys.readouterr().out
    count = len(asked)
    assert run(script, tmp_path, "--cells", "64x2,32x1") == 0
    assert {plan.cells[0].context for plan in asked[count:]} == {32}, "what is known is not measured again, nor what failed"


def test_time_ends_it_and_it_goes_on(script, asked, tmp_path):
    assert run(script, tmp_path, "--cells", "64x2", "--seconds", "1") == 7
    assert asked == []
    assert run(script, tmp_path, "--cells", "64x2", "--seconds", "1000") == 0
    assert len(asked) == 5


def test_a_machine_on_which_nothing_runs_is_asked_again(script, asked, tmp_path):
    given = ["--model", "tiny", "--device", "cpu", "--arms", "flex_attention", "--cells", "64x2", "--out", str(tmp_path)]
    for times in (1, 2):
        assert script.main(given) == 0
        assert len(asked) == times


def test_rankings_of_several_accounts_are_one_by_the_ratio_to_each_ones_stock(script, asked, tmp_path):
    run(script, tmp_path, "--cells", "64x2")
    accounts = [item.account for item in script.read(tmp_path / "best_config.jsonl").values() if item.account is not None]
    assert [r.arm for r in merged(tuple(map(ranked, accounts)))] == ["sdpa_gqa", "sdpa default", STOCK, "eager"]
