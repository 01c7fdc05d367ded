"""The search: every point once, none invalid, the same again from the same history, and better than chance where it can be."""

from __future__ import annotations

import logging
import math
import subprocess
import sys
from collections.abc import Mapping
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepfast.errors import UsageError
from keepfast.model import Candidate, File, Reason, Tunables
from keepfast.propose import search
from keepfast.propose.base import Brief, structure_hash
from keepfast.propose.search import SearchProposer, totals
from keepfast.task import tunables

WIDE = "\n".join(f"[P{k}]\nrange = [0, 49]\nvalue = 10\n" for k in range(3))
CROSS = 'constraints = ["A * B + B * C + C * A == 0"]\n' + "".join(f"[{n}]\nrange = [0, 99]\nvalue = 0\n" for n in "ABC")


def begin(make: SimpleNamespace, text: str | None = None, seed: int = 7) -> Brief:
    champion = make.candidate(text or make.space)
    held = tunables.parse(text or make.space).values
    start = make.experiment(1, Reason.START, proposer="hand", parent=0, tunables=held, structure=structure_hash(champion.files, make.path))
    return Brief(make.task(), champion, (start,), seed)


def values(brief: Brief) -> list[tuple[tuple[str, object], ...]]:
    return [e.tunables for e in brief.history if e.verdict.reason is not Reason.START]  # type: ignore[misc]


def flat(_: Mapping[str, object]) -> float:
    return 0.0


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_a_small_space_is_walked_whole_without_repeats(make: SimpleNamespace, sampler: str) -> None:
    done = make.play(SearchProposer(sampler, trials=1000), flat, begin(make))
    space = tunables.parse(make.space)
    valid = 13 * 2 - 1  # BLOCK * UNROLL <= 256 leaves 13 of 16 pairs, times two layouts, less the champion's own
    assert len(values(done)) == len(set(values(done))) == valid
    assert all(space.valid(v) is None for v in values(done))  # type: ignore[arg-type]
    assert space.values not in values(done)


def test_every_structure_has_its_budget_once(make: SimpleNamespace) -> None:
    done = make.play(SearchProposer(), flat, begin(make))
    assert len(values(done)) == 24
    other = Brief(done.task, make.candidate(kernel=File("kernel/kernel.c", b"int other;"), n=30), done.history, done.seed)
    again = make.play(SearchProposer(), flat, other)
    assert len(values(again)) == 48
    assert SearchProposer().propose(Brief(again.task, done.champion, again.history, again.seed)) is None


def test_the_arms_do_not_spend_each_others_budget(make: SimpleNamespace) -> None:
    tuned = make.play(SearchProposer("random", trials=10), flat, begin(make))
    both = make.play(SearchProposer("tpe", trials=10), flat, tuned)
    assert len(values(both)) == 20
    assert len(set(values(both))) == 20


def test_the_same_history_and_seed_give_the_same_proposal(make: SimpleNamespace) -> None:
    def hill(v: Mapping[str, object]) -> float:
        return abs(math.log2(v["BLOCK"]) - 6) / 10  # type: ignore[arg-type]

    one, two = (make.play(SearchProposer(), hill, begin(make)) for _ in range(2))
    assert values(one) == values(two)
    middle = Brief(one.task, one.champion, one.history[:6], one.seed)
    assert SearchProposer().propose(middle) == SearchProposer().propose(middle)


def test_other_seeds_go_other_ways(make: SimpleNamespace) -> None:
    assert values(make.play(SearchProposer(), flat, begin(make, seed=1))) != values(make.play(SearchProposer(), flat, begin(make, seed=2)))


def test_keeps_move_the_champion_and_never_bring_values_back(make: SimpleNamespace) -> None:
    def score(v: Mapping[str, object]) -> float:
        return -0.05 * math.log2(v["BLOCK"] * v["UNROLL"]) - 0.02 * (v["LAYOUT"] == "tile")  # type: ignore[operator]

    done = make.play(SearchProposer(trials=1000), score, begin(make))
    assert len(values(done)) == len(set(values(done))) == 25
    best = dict(tunables.parse(done.champion.files[1].data.decode()).values)
    assert best["BLOCK"] * best["UNROLL"] == 256  # type: ignore[operator]


def test_failures_and_suspects_are_no_values(make: SimpleNamespace) -> None:
    reasons = iter([Reason.BUILD, Reason.WRONG, Reason.TOO_FAST, Reason.SAME_CODE, Reason.HANG] * 40)
    done = make.play(SearchProposer(trials=1000), lambda _: next(reasons), begin(make))
    assert len(set(values(done))) == 25


def test_void_values_are_tried_again_and_cost_no_budget(make: SimpleNamespace) -> None:
    done = make.play(SearchProposer(trials=5), lambda _: Reason.MACHINE, begin(make))
    assert max(values(done).count(v) for v in values(done)) == 3
    assert len(set(values(done))) == 25


def test_the_first_guess_after_a_void_is_the_historys_not_a_memory(make: SimpleNamespace) -> None:
    start = begin(make)
    first = SearchProposer().propose(start)
    assert first is not None
    spoiled = make.judged(start, first, Reason.MACHINE)
    assert len(values(spoiled)) == 1
    assert SearchProposer().propose(spoiled) is not None


def test_a_large_space_finds_the_valley_better_than_chance(make: SimpleNamespace) -> None:
    def valley(v: Mapping[str, object]) -> float:
        return sum(((x - 37) / 50) ** 2 for x in v.values())  # type: ignore[operator]

    def best(sampler: str, seed: int) -> float:
        done = make.play(SearchProposer(sampler, trials=40), valley, begin(make, WIDE, seed))
        return min(valley(dict(v)) for v in values(done))

    tpe, chance = ([best(s, seed) for seed in range(3)] for s in ("tpe", "random"))
    assert sum(tpe) < sum(chance)


def test_where_few_points_are_valid_neighbours_are_found(make: SimpleNamespace) -> None:
    """298 of a million points are valid, the champion's neighbours among them."""
    done = make.play(SearchProposer(trials=12), flat, begin(make, CROSS))
    assert len(set(values(done))) == 12
    assert all(sum(x != 0 for x in dict(v).values()) == 1 for v in values(done))


def test_the_champions_own_values_are_never_proposed(make: SimpleNamespace) -> None:
    """Not even when no experiment tells them."""
    start = Brief(make.task(), make.candidate("[A]\nrange = [0, 9]\nvalue = 4\n"), seed=3)
    done = make.play(SearchProposer(), flat, start)
    assert sorted(v[0][1] for v in values(done)) == [0, 1, 2, 3, 5, 6, 7, 8, 9]  # type: ignore[type-var]


def test_the_study_is_told_totals_and_failures(make: SimpleNamespace) -> None:
    """Trials against different champions become comparable: the total of the champion of the time plus the measured d."""
    text = "[A]\nrange = [0, 9]\nvalue = 8\n"
    champion = make.candidate(text, n=9)
    structure = structure_hash(champion.files, make.path)

    def tried(n: int, a: int, reason: Reason, d: float | None, parent: int) -> object:
        return make.experiment(n, reason, d, parent=parent, tunables=(("A", a),), structure=structure)

    history = (
        tried(1, 0, Reason.START, None, 0),
        tried(2, 1, Reason.NO_GAIN, 0.02, 1),
        tried(3, 2, Reason.FASTER, -0.3, 1),
        tried(4, 3, Reason.NO_GAIN, 0.05, 3),
        tried(5, 4, Reason.TOO_FAST, -2.0, 3),
        tried(6, 5, Reason.BUILD, None, 3),
        tried(7, 6, Reason.MACHINE, None, 3),
        tried(8, 7, Reason.SAME_CODE, None, 3),
        tried(9, 8, Reason.FASTER, -0.1, 3),
    )
    brief = Brief(make.task(), champion, history)  # type: ignore[arg-type]
    told = search._study("tpe", brief, search._known(brief, tunables.parse(text))).trials
    found = {t.params["A"]: t.value for t in told}
    assert found == pytest.approx({8: -0.4, 2: -0.3, 0: 0.0, 1: 0.02, 3: -0.25, 4: None, 5: None, 7: None})


def test_the_proposal_says_what_changes(make: SimpleNamespace) -> None:
    found = SearchProposer().propose(begin(make))
    assert found is not None
    assert isinstance(found.change, Tunables)
    assert found.proposer == "search"
    new, old = dict(found.change.values), dict(tunables.parse(make.space).values)
    assert set(new) == set(old)
    assert found.title == ", ".join(f"{n} {tunables.literal(old[n])} -> {tunables.literal(v)}" for n, v in new.items() if v != old[n])
    assert SearchProposer("random").name == "random"


def test_no_tunables_is_nothing_to_do(make: SimpleNamespace) -> None:
    assert SearchProposer().propose(Brief(make.task(tunables_path=""), make.candidate())) is None
    assert SearchProposer().propose(begin(make, "# none yet\n")) is None
    for broken in ("[BLOCK\n", "[BLOCK]\nvalue = 3\n", "\udcff"):
        champion = Candidate((File(make.path, broken.encode("utf-8", "surrogateescape")),), "t", "", 1)
        assert SearchProposer().propose(Brief(make.task(), champion)) is None
    assert SearchProposer().propose(begin(make, "[A]\nchoices = [1]\nvalue = 1\n")) is None


def test_true_is_not_one(make: SimpleNamespace) -> None:
    done = make.play(SearchProposer(), flat, begin(make, "[A]\nchoices = [true, 1, 1.0, false]\nvalue = true\n"))
    assert [repr(v[0][1]) for v in sorted(values(done), key=repr)] == ["1", "1.0", "False"]


def test_values_that_are_no_longer_declared_are_passed_over(make: SimpleNamespace) -> None:
    start = begin(make)
    structure = structure_hash(start.champion.files, make.path)
    odd = make.experiment(2, Reason.BAD_TUNABLES, structure=structure, tunables=(("BLOCK", 17), ("UNROLL", 1), ("LAYOUT", "row")))
    part = make.experiment(3, Reason.NO_GAIN, structure=structure, tunables=(("BLOCK", 16),))
    assert SearchProposer().propose(Brief(start.task, start.champion, (odd, part), 7)) is not None


def test_an_unknown_sampler_is_refused() -> None:
    with pytest.raises(UsageError):
        SearchProposer("annealing")


def test_totals_add_up_along_the_keeps(make: SimpleNamespace) -> None:
    history = (
        make.experiment(1, Reason.START, parent=0),
        make.experiment(2, Reason.FASTER, -0.2, parent=1),
        make.experiment(3, Reason.NO_GAIN, -0.5, parent=2),
        make.experiment(4, Reason.FASTER, -0.1, parent=2),
    )
    assert totals(history) == pytest.approx({0: 0.0, 1: 0.0, 2: -0.2, 4: -0.3})


def test_optuna_is_quiet_and_its_level_is_put_back(make: SimpleNamespace, capfd: pytest.CaptureFixture[str]) -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.INFO)
    SearchProposer().propose(begin(make))
    assert capfd.readouterr() == ("", "")
    assert optuna.logging.get_verbosity() == logging.INFO


def test_optuna_is_imported_only_when_it_is_used() -> None:
    code = "import sys, keepfast.propose.search, keepfast.propose.sequence, keepfast.propose.deck; sys.exit('optuna' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


choice = st.one_of(st.integers(-9, 9), st.booleans(), st.sampled_from(["x", "y"]))


@st.composite
def spaces(draw: st.DrawFn) -> str:
    lines = []
    for k in range(draw(st.integers(1, 3))):
        choices = draw(st.lists(choice, min_size=1, max_size=4, unique_by=repr))
        shown = [tunables.literal(c) for c in choices]
        lines.append(f"[T{k}]\nchoices = [{', '.join(shown)}]\nvalue = {shown[0]}\n")
    return "\n".join(lines)


@settings(max_examples=8, deadline=None)
@given(text=spaces(), seed=st.integers(0, 10**6))
def test_any_small_space_ends_after_all_its_points(make: SimpleNamespace, text: str, seed: int) -> None:
    done = make.play(SearchProposer(trials=1000), flat, begin(make, text, seed))
    found = [tuple(map(repr, v)) for v in values(done)]
    assert len(found) == len(set(found)) == tunables.parse(text).size - 1
