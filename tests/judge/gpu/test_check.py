"""The rung `correct` on a GPU: in what order a subject is launched, and how each way to be wrong ends."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from keepfast.gpu.messages import Audit, Profile, Run, Solo, Tolerance, Wind
from keepfast.judge.endings import Failure
from keepfast.judge.gpu import check
from keepfast.judge.gpu.check import Checker, Correct, parts, resources, wider
from keepfast.model import Reason

from .inside import Acts, FakeLaunchers, FakeOracle, captured, stage, stock

MAIN, ODD = stage("main", calls=5), stage("odd", calls=1, draws=2, use="correct")


class Bench:
    def __init__(self, **acts: Any) -> None:
        self.oracle, self.launchers = FakeOracle((MAIN.layout, ODD.layout)), FakeLaunchers()
        self.checker = Checker(self.launchers, self.oracle, Random(3))  # type: ignore[arg-type]
        self.captured, self.stock = captured(Acts(**acts), MAIN, ODD), stock(self.oracle, MAIN, ODD)

    def check(self) -> Correct | Failure:
        return self.checker.check(self.captured, (MAIN, ODD), self.stock)

    def failure(self) -> Failure:
        found = self.check()
        assert isinstance(found, Failure)
        assert self.launchers.alive == 0
        return found

    def right(self) -> Correct:
        found = self.check()
        assert isinstance(found, Correct)
        return found


# ---- what passes


def test_every_case_is_launched_in_a_launcher_of_its_own() -> None:
    bench = Bench()
    found = bench.right()
    assert [r.case for r in found.cases] == ["main", "odd"]
    assert bench.launchers.started == 2
    assert [case for case, _ in bench.launchers.opened] == ["main", "main", "odd", "odd"]
    assert found.ns == {"main": pytest.approx(10_000), "odd": pytest.approx(10_000)}
    assert found.of("odd").call_ns == pytest.approx(10_000)


def test_draws_alone_then_mixtures_in_a_chain_in_chains_of_some_and_again() -> None:
    bench = Bench()
    bench.right()
    main = bench.launchers.orders[: bench.launchers.orders.index(Profile(0)) + 1]
    verbatim, *asked = main[:5]
    assert isinstance(verbatim, Run)
    assert (verbatim.calls, verbatim.verbatim, verbatim.alone, verbatim.keep) == (check.VERBATIM, True, True, False)
    assert asked == [Audit(0, i) for i in range(check.VERBATIM)]
    first, drawn, *others = main[5:-1]
    some, again = others[:4], others[4:]
    assert isinstance(first, Run)
    assert isinstance(drawn, Audit)
    assert 0 <= drawn.index < 5
    assert first == Run(0, first.nonce, 5, keep=True)
    assert [replace(run, some=0) for run in some if isinstance(run, Run)] == [Run(0, first.nonce, 5, against=True)] * 4
    assert all(1 <= run.some <= 4 for run in some if isinstance(run, Run))
    assert again == [Run(0, first.nonce, 5, against=True)] * check.AGAIN
    assert first.nonce != verbatim.nonce


def test_no_more_draws_are_checked_than_there_are_draws_and_calls() -> None:
    bench = Bench()
    bench.right()
    runs = [o for o in bench.launchers.orders if isinstance(o, Run) and o.verbatim]
    assert [r.calls for r in runs] == [4, 1]


def test_the_second_opening_allows_twice_the_widest_budget() -> None:
    bench = Bench(said={"verbatim": {"budgets": [0.01]}})
    found = bench.right()
    assert found.of("main").budgets == (Tolerance("float32", 64, 0.01, 0.04),)
    assert bench.launchers.tolerances[:2] == [MAIN.results, (Tolerance("float32", 64, 0.02, 0.08),)]


def test_the_wider_of_two_budgets() -> None:
    one, other = Tolerance("float32", 8, 1.0, 5.0), Tolerance("float32", 8, 2.0, 4.0)
    assert wider((), (one,)) == (one,)
    assert wider((one,), (other,)) == (Tolerance("float32", 8, 2.0, 5.0),)


def test_facts_name_each_kernel_once_with_what_it_takes() -> None:
    facts = {f.name: f.value for f in Bench(shares={"rms_k": 0.9, "fill": 0.1}).right().facts()}
    assert facts["checked"] == "2 cases, chains of some calls, 20 launches of all"
    assert facts["rms_k"] == "32 registers, 2.0 KiB shared, 128 threads"
    assert list(facts) == ["checked", "rms_k", "fill"]


# ---- what does not

CASES: list[tuple[dict[str, Any], Reason, str, bool]] = [
    ({"said": {"verbatim": {"wrong": "out[3]"}}}, Reason.WRONG, "case main: out[3]", False),
    ({"said": {"mixed": {"wrong": "out[3]"}}}, Reason.WRONG, "case main: out[3]", False),
    (
        {"said": {"verbatim": {"wrong": "out[3]", "stale": True}}},
        Reason.STATEFUL,
        "case main: new contents, and an old answer came back",
        True,
    ),
    (
        {"ran": {"verbatim": {"early": [2, 1]}}},
        Reason.OUT_OF_BOUNDS,
        "case main: a call wrote the results of other calls, of call 2 first",
        True,
    ),
    ({"ran": {"some": {"early": [4]}}}, Reason.OUT_OF_BOUNDS, "case main: a call wrote the results of other calls, of call 4 first", True),
    ({"ran": {"some": {"unwritten": [2]}}}, Reason.WRONG, "case main: part of the results was never written, in call 2 first", False),
    (
        {"ran": {"mixed": {"inputs": [1]}}},
        Reason.OUT_OF_BOUNDS,
        "case main: an argument that is not marked `!` was changed, in call 1",
        False,
    ),
    (
        {"ran": {"verbatim": {"unwritten": [0]}}},
        Reason.WRONG,
        "case main: part of the results was never written, in call 0 first",
        False,
    ),
    ({"ran": {"again": {"unwritten": [3]}}}, Reason.WRONG, "case main: part of the results was never written, in call 3 first", False),
    (
        {"ran": {"some": {"odd": [2]}}},
        Reason.UNSTABLE,
        "case main: call 2 gives another result when launched again on the same contents",
        False,
    ),
    (
        {"ran": {"again": {"odd": [1, 3]}}},
        Reason.UNSTABLE,
        "case main: call 1 gives another result when launched again on the same contents",
        False,
    ),
]


@pytest.mark.parametrize(("acts", "reason", "detail", "cheat"), CASES)
def test_ways_to_be_wrong(acts: dict[str, Any], reason: Reason, detail: str, cheat: bool) -> None:
    assert Bench(**acts).failure() == Failure(reason, detail, cheat)


def test_of_several_offences_the_one_that_only_a_trick_produces_counts() -> None:
    found = Bench(ran={"verbatim": {"early": [1], "inputs": [1], "unwritten": [1], "odd": [1]}}).failure()
    assert (found.reason, found.cheat) == (Reason.OUT_OF_BOUNDS, True)


LATER: list[tuple[dict[str, Any], str]] = [
    ({"numbered": 3}, "3 words of memory that lives on between calls say how many calls there were, and not by steps that could be wound"),
    ({"ahead": [[840, {}], [16800, {"unwritten": [4]}]]}, "call 4 gives another result after about 16,800 calls"),
    ({"ahead": [[840, {"odd": [2]}]]}, "call 2 gives another result after about 840 calls"),
    ({"ahead": [[0, {"odd": [1]}]]}, "call 1 gives another result when what earlier calls left in memory that lives on is overwritten"),
]


@pytest.mark.parametrize(("wound", "detail"), LATER)
def test_memory_that_lives_on_must_not_matter(wound: dict[str, Any], detail: str) -> None:
    found = Bench(keeps=True, wound=wound).failure()
    assert (found.reason, found.cheat) == (Reason.STATEFUL, False)
    assert found.detail.startswith(f"case main: {detail}")


def test_only_plans_that_keep_something_are_wound_forward_and_last() -> None:
    bench = Bench(keeps=True, wound={"counting": 1, "other": 5, "ahead": [[840, {}], [0, {}]]})
    bench.right()
    orders = bench.launchers.orders
    at = orders.index(Profile(0))
    assert orders[at - 1] == replace(orders[at - 1], arm=0, calls=5)
    assert [type(o) for o in orders].count(Wind) == 2
    assert isinstance(orders[at - 1], Wind)
    plain = Bench(wound={"numbered": 1})
    plain.right()
    assert [o for o in plain.launchers.orders if isinstance(o, Wind)] == []


def test_a_fault_much_later_says_when() -> None:
    found = Bench(keeps=True, crashes=("wind",)).failure()
    assert found.detail == f"case main, {check.LATER}: illegal address"


@pytest.mark.parametrize("calls", [1, 2, 3, 4, 5, 9, 512])
def test_sizes_of_chains_of_some_calls(calls: int) -> None:
    for seed in range(200):
        sizes = parts(calls, Random(seed))
        assert len(sizes) == (4 if calls > 1 else 0)
        assert all(1 <= size < calls for size in sizes)
        for group in range(2, calls):  # who puts work off in groups leaves some undone
            assert any(size % group for size in sizes)


@pytest.mark.parametrize("moment", ["open", "verbatim", "audit", "open 1", "mixed", "some", "again", "profile"])
def test_a_fault_at_any_moment_ends_it(moment: str) -> None:
    assert Bench(crashes=(moment,)).failure() == Failure(Reason.CRASH, "case main: illegal address")


def test_the_first_case_that_fails_ends_it() -> None:
    bench = Bench(crashes=("open",))
    bench.failure()
    assert bench.launchers.opened == [("main", (("rms", 0),))]


# ---- the pace of configurations


def test_pace_times_each_case_and_checks_nothing() -> None:
    bench = Bench(ns=2000.0, by_case={"odd": 3.0}, said={"mixed": {"wrong": "out[3]"}})
    found = bench.checker.pace(bench.captured, (MAIN, ODD), bench.stock)
    assert found == {"main": pytest.approx(2000.0), "odd": pytest.approx(6000.0)}
    assert bench.launchers.orders == [Solo(0, 5, check.SOLO_LAUNCHES), Solo(0, 1, check.SOLO_LAUNCHES)]
    assert bench.oracle.asked == []


@pytest.mark.parametrize("moment", ["open", "solo"])
def test_pace_of_what_faults(moment: str) -> None:
    bench = Bench(crashes=(moment,))
    assert bench.checker.pace(bench.captured, (MAIN, ODD), bench.stock) == Failure(Reason.CRASH, "case main: illegal address")
    assert bench.launchers.started == 1


def test_spills_are_told() -> None:
    kernel = Bench().right().cases[0].kernels[0]
    assert resources(replace(kernel, spill_bytes=16)) == "32 registers, 16 bytes spilled, 2.0 KiB shared, 128 threads"
