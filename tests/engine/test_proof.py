"""The proof: what passes, and each thing that is refused, with its reason."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from keepfast.engine.amdahl import Micro
from keepfast.engine.base import STOCK, Account, Cell, Lap, Likeness, Slot, runs
from keepfast.engine.campaign import together
from keepfast.engine.proof import Bounds, prove
from keepfast.model import Estimate
from keepfast.model.proof import WHY, Outcome, Proof, Why
from keepfast.report import e2e as report
from tests.engine import accounts
from tests.engine.accounts import KEPT, STEP, account, with_graphs


def whys(proof: Proof) -> set[Why]:
    return {r.why for r in proof.reasons}


def state(proof: Proof, name: str) -> str:
    return next(c.state for c in proof.checks if c.name == name)


def micro(speedup: float, half: float = 0.01) -> tuple[Micro, ...]:
    d = -math.log(speedup)
    return (Micro(KEPT, Estimate(d, d - half, d + half, half / 2, 6, "baseline sdpa")),)


# ------------------------------------------------------------------------------------------------ what passes


def test_a_gain_in_every_cell_passes() -> None:
    proof = prove(account(0.8), Bounds())
    assert proof.passed
    assert whys(proof) == {Why.FASTER}
    assert {c.state for c in proof.checks} == {"ok"}
    assert proof.whole is not None
    assert proof.whole.speedup == pytest.approx(1.25, rel=0.005)
    assert proof.whole.low < proof.whole.d < proof.whole.high < 0
    assert proof.evidence == "engine with graphs"
    assert "one engine on one machine" in proof.weakest
    assert [c.cell for c in proof.cells] == list(STEP)


def test_intervals_are_students_over_rounds() -> None:
    proof = prove(account(0.8, rounds=4, noise=0.01), Bounds())
    cell = proof.cells[0].estimate
    t = 3.182446  # two-sided 95 %, 3 degrees of freedom
    assert cell.rounds == 4
    assert cell.high - cell.low == pytest.approx(2 * t * cell.sd / 2, rel=1e-4)


def test_the_same_kernel_in_both_arms_is_no_win_and_no_loss() -> None:
    proof = prove(account(1.0), Bounds())
    assert proof.outcome is Outcome.MICRO
    assert whys(proof) == {Why.NO_GAIN}
    assert "not shipped" in WHY[Why.NO_GAIN][1]


def test_every_reason_has_an_outcome_and_a_sentence() -> None:
    assert set(WHY) == set(Why)
    assert all(words for _, words in WHY.values())


# ------------------------------------------------------------------------------------------------ what is refused


def test_a_planted_slowdown_of_2_percent_is_refused_though_the_kernel_alone_is_10_percent_faster() -> None:
    proof = prove(account(1.02, noise=0.002), Bounds(), micro(1.10))
    assert proof.outcome is Outcome.REFUSED
    assert Why.SLOWER in whys(proof)
    assert Why.CELL_LOSS in whys(proof)
    predicted = proof.cells[0].predicted
    assert predicted is not None
    assert predicted.d < 0, "alone it would gain"
    assert "part of the gain is lost" in proof.flags[0]


@pytest.mark.parametrize("arm", [STOCK, KEPT])
def test_graphs_switched_off_in_one_arm_are_refused(arm: str) -> None:
    proof = prove(with_graphs(account(0.5), arm, share=0.0), Bounds())
    assert proof.outcome is Outcome.REFUSED
    assert whys(proof) >= {Why.GRAPHS_OFF}
    assert f"0.0 % in `{arm}`" in next(r.said for r in proof.reasons if r.why is Why.GRAPHS_OFF)


def test_graphs_that_are_shown_in_one_arm_only_or_differ_are_refused() -> None:
    assert Why.GRAPHS_DIFFER in whys(prove(with_graphs(account(), KEPT, share=None), Bounds()))
    assert Why.GRAPHS_DIFFER in whys(prove(with_graphs(account(), KEPT, share=0.96), Bounds()))
    assert prove(with_graphs(account(), KEPT, share=0.99), Bounds()).passed
    assert Why.GRAPHS_OFF in whys(prove(with_graphs(account(), KEPT, share=math.nan), Bounds()))


def test_a_kernel_that_never_runs_is_refused() -> None:
    stock_like = with_graphs(account(0.7), KEPT, launches=((accounts.OLD, 32), ("nvjet", 64)))
    proof = prove(stock_like, Bounds())
    assert proof.outcome is Outcome.REFUSED
    assert whys(proof) == {Why.FASTER, Why.NOT_ENGAGED}
    assert "16 launches a step were expected" in next(r.said for r in proof.reasons if r.why is Why.NOT_ENGAGED)


def test_a_kernel_that_runs_in_half_of_the_layers_or_in_stock_is_refused() -> None:
    half = with_graphs(account(), KEPT, launches=(("split_kv_decode", 8),))
    assert Why.PARTLY_ENGAGED in whys(prove(half, Bounds()))
    both = with_graphs(account(), STOCK, launches=(("split_kv_decode", 16),))
    assert Why.STOCK_PATCHED in whys(prove(both, Bounds()))


def test_a_decode_kernel_is_not_looked_for_in_a_prefill() -> None:
    made = account()
    prefill = Cell("prefill", 512, 1)
    laps = tuple(Lap(prefill.name, arm, r, 0.01 * (1 + 0.0005 * ((r * 7) % 5))) for r in range(6) for arm in made.arms)
    graphs = tuple(replace(g, cell=prefill.name, launches=(("fmha", 16),), share=0.1, seconds=()) for g in made.graphs[:2])
    more = replace(made, cells=(*made.cells, prefill), laps=(*made.laps, *laps), graphs=(*made.graphs, *graphs))
    assert prove(more, Bounds()).passed


@pytest.mark.parametrize(("kl", "top1"), [(2.0, 0.01), (math.nan, 0.97), (5e-3, 0.97), (7e-4, 0.7)])
def test_garbage_is_refused(kl: float, top1: float) -> None:
    made = account(0.5)
    garbage = tuple(one for c in accounts.CELLS[:2] for one in accounts.alike(c, kl, top1))
    proof = prove(replace(made, likeness=garbage), Bounds())
    assert proof.outcome is Outcome.REFUSED
    assert Why.OUTPUTS_DIFFER in whys(proof)


def test_one_bad_position_is_refused() -> None:
    made = account(0.5)
    one = next(x for x in made.likeness if x.arm == KEPT)
    bad = tuple(replace(x, kl_worst=0.5) if x is one else x for x in made.likeness)
    assert Why.OUTPUTS_DIFFER in whys(prove(replace(made, likeness=bad), Bounds()))


def test_rounding_alone_is_not_garbage() -> None:
    """Twice the null's KL is what an equally exact kernel gives whose errors are its own."""
    made = account(0.8)
    twice = tuple(one for c in accounts.CELLS[:2] for one in accounts.alike(c, 2 * 6e-4, 0.95))
    assert prove(replace(made, likeness=twice), Bounds()).passed


def test_without_a_float32_null_only_the_floor_is_allowed_and_that_is_said() -> None:
    made = account(0.8)
    blind = tuple(x for x in made.likeness if x.against != "stock in float32")
    proof = prove(replace(made, likeness=blind), Bounds())
    assert Why.OUTPUTS_DIFFER in whys(proof)
    assert "no float32 run" in next(r.said for r in proof.reasons if r.why is Why.OUTPUTS_DIFFER)
    exact = tuple(replace(x, kl_mean=1e-6, kl_worst=1e-5, top1=1.0) for x in blind)
    assert prove(replace(made, likeness=exact), Bounds()).passed


def test_a_win_below_2k_only_is_refused_and_told_where_it_wins() -> None:
    by_cell = {"decode 1024 x 1": 0.6, "decode 8192 x 8": 1.03, "decode 32768 x 4": 1.05, "decode 131072 x 1": 1.04}
    proof = prove(account(by_cell), Bounds())
    assert proof.whole is not None
    assert proof.whole.high < 0, "over all cells it wins, and is refused all the same"
    assert proof.outcome is Outcome.REFUSED
    assert whys(proof) == {Why.CELL_LOSS}
    assert all("it wins at decode 1024 x 1: route only those" in r.said for r in proof.reasons)
    assert proof.worst == "decode 32768 x 4"


def test_contexts_that_the_task_names_must_have_been_measured() -> None:
    made = account()
    short = replace(made, cells=made.cells[:1], laps=tuple(x for x in made.laps if x.cell == made.cells[0].name))
    proof = prove(short, Bounds(cells=tuple(STEP)))
    assert proof.outcome is Outcome.REFUSED
    assert [r.said for r in proof.reasons if r.why is Why.CELLS_MISSING][-1] == "decode 131072 x 1 was not measured"


def test_a_cell_that_is_not_shown_to_keep_within_the_bound_is_a_micro_win_only() -> None:
    proof = prove(account({**dict.fromkeys(STEP, 0.5), "decode 1024 x 1": 1.0}, noise=0.02), Bounds())
    assert proof.outcome is Outcome.MICRO
    assert whys(proof) == {Why.CELL_UNSURE}


def test_a_tie_is_flagged() -> None:
    proof = prove(account({**dict.fromkeys(STEP, 0.8), "decode 1024 x 1": 1.0}, noise=0.0005), Bounds())
    assert proof.passed
    assert any("no gain shown at decode 1024 x 1" in flag for flag in proof.flags)


def test_memory() -> None:
    made = replace(account(), peak_bytes=((STOCK, 100 << 20), (KEPT, 103 << 20)))
    assert Why.MEMORY in whys(prove(made, Bounds()))
    assert prove(made, Bounds(memory=0.05)).passed


def test_two_rounds_are_no_interval() -> None:
    proof = prove(account(rounds=2), Bounds())
    assert proof.outcome is Outcome.REFUSED
    assert whys(proof) == {Why.TOO_FEW_ROUNDS}
    assert proof.whole is None


def test_an_arm_that_crashed_is_refused_with_its_words() -> None:
    made = account()
    gone = replace(made, laps=tuple(x for x in made.laps if x.arm == STOCK), notes=(f"{KEPT}: ended with status 139",))
    proof = prove(gone, Bounds())
    assert Why.CRASHED in whys(proof)
    assert "status 139" in proof.reasons[0].said


def test_an_arm_that_crashed_after_enough_rounds_is_refused_all_the_same() -> None:
    proof = prove(replace(account(), notes=(f"{KEPT}: decode 1024 x 1: ValueError",)), Bounds())
    assert whys(proof) == {Why.CRASHED, Why.FASTER}
    assert proof.outcome is Outcome.REFUSED


def test_an_impossible_time_is_an_error_of_the_engine() -> None:
    made = account()
    with pytest.raises(ValueError, match="is no time"):
        prove(replace(made, laps=(replace(made.laps[0], seconds=0.0), *made.laps[1:])), Bounds())
    with pytest.raises(ValueError, match="no arm"):
        prove(made, Bounds(), (), "nobody")


# ------------------------------------------------------------------------------------------------ what was not shown


@pytest.mark.parametrize(
    ("name", "bare"),
    [
        ("graphs", {"graphs": "share"}),
        ("engagement", {"slots": ()}),
        ("outputs", {"likeness": ()}),
        ("memory", {"peak_bytes": ()}),
    ],
)
def test_what_is_not_shown_refuses_unless_the_task_accepts_it(name: str, bare: dict[str, object]) -> None:
    made = account()
    made = with_graphs(with_graphs(made, STOCK, share=None), KEPT, share=None) if name == "graphs" else replace(made, **bare)
    proof = prove(made, Bounds())
    assert proof.outcome is Outcome.REFUSED
    assert whys(proof) == {Why.FASTER, Why.NOT_SHOWN}
    accepted = prove(made, Bounds(unshown=(name,)))
    assert accepted.passed
    assert state(accepted, name) == "unshown"
    words = {
        "graphs": "CUDA graphs",
        "engagement": "ran in the engine",
        "outputs": "outputs stay the same was not shown",
        "memory": "peak memory",
    }[name]
    assert words in accepted.weakest


@pytest.mark.parametrize(("kl", "factor"), [(6e-4, "3.0"), (1e-4, "18.0"), (0.0, "no KL at all")])
def test_outputs_that_would_hide_a_planted_fault_show_nothing(kl: float, factor: str) -> None:
    made = account(0.8)
    blind = replace(made, planted=(made.planted[0], accounts.planted(made.cells[1], kl)))
    proof = prove(blind, Bounds())
    assert whys(proof) == {Why.FASTER, Why.NOT_SHOWN}
    said = proof.reasons[0].said
    assert said.startswith("outputs not shown: decode 8192 x 8: a planted fault, attention_decode with zeros, moves the logits by")
    assert factor in said
    assert 'unshown = ["outputs"]' in said
    assert prove(blind, Bounds(unshown=("outputs",))).passed


def test_a_slot_without_a_planted_fault_shows_nothing() -> None:
    proof = prove(replace(account(0.8), planted=()), Bounds())
    assert "no fault was planted in attention_decode" in next(r.said for r in proof.reasons if r.why is Why.NOT_SHOWN)


def test_outputs_that_differ_are_said_to_differ_though_they_are_blind_too() -> None:
    made = account(0.8)
    garbage = tuple(one for c in accounts.CELLS[:2] for one in accounts.alike(c, 2.0))
    assert Why.OUTPUTS_DIFFER in whys(prove(replace(made, likeness=garbage, planted=()), Bounds()))


def test_on_a_cpu_graphs_are_no_matter_and_the_evidence_is_lower() -> None:
    made = account(device="cpu")
    proof = prove(with_graphs(with_graphs(made, STOCK, share=None), KEPT, share=None), Bounds())
    assert proof.passed
    assert proof.evidence == "engine on a CPU"
    assert "not a GPU: graphs not shown" in [c.said for c in proof.checks]
    assert "on a CPU" in proof.weakest


# ------------------------------------------------------------------------------------------------ opponents


BEST = "sdpa_gqa max-autotune"


def opposed(ratio: float, at: str) -> Account:
    """Stock in two other configurations: one of no use; the other takes `ratio` of its step in the cell `at`, nearly all elsewhere."""
    made = account(0.8)
    stock = [x for x in made.laps if x.arm == STOCK]
    laps = [replace(x, arm=BEST, seconds=x.seconds * (ratio if x.cell == at else 0.95)) for x in stock]
    useless = [replace(x, arm="eager", seconds=x.seconds * 2) for x in stock]
    return replace(made, arms=(*made.arms, BEST, "eager"), laps=(*made.laps, *laps, *useless))


@pytest.mark.parametrize(
    ("ratio", "whys_"), [(0.7, {Why.CELL_LOSS}), (0.8 / 1.01, {Why.CELL_UNSURE}), (0.85, {Why.FASTER}), (1.5, {Why.FASTER})]
)
def test_the_best_configuration_without_a_kernel_must_not_win_in_any_cell(ratio: float, whys_: set[Why]) -> None:
    at = accounts.CELLS[1].name
    proof = prove(opposed(ratio, at), Bounds(opponents=("eager", BEST)))
    assert whys(proof) == whys_
    assert {c.cell: c.best for c in proof.cells} == dict.fromkeys(STEP, BEST) | ({at: STOCK} if ratio > 1 else {})
    assert proof.whole is not None
    assert proof.whole.speedup == pytest.approx(1.25, rel=0.005), "against stock"
    shown = "\n".join(report.table(proof))
    assert "speedup over it" in shown
    if ratio < 0.75:
        assert f"{at}: +14." in proof.reasons[0].said
        assert f"against `{BEST}`" in proof.reasons[0].said


def test_opponents_are_no_part_of_a_campaign_and_one_that_did_not_run_is_said() -> None:
    found = together(replace(campaign(0.8, 0.9, 0.72), arms=(STOCK, "a", "b", "a + b", BEST)), Bounds(opponents=(BEST,)))
    assert [p.arm for p in found.proofs] == ["a", "b", "a + b"]
    assert any(flag.startswith("no opponent ran at") for flag in found.proofs[0].flags)


# ------------------------------------------------------------------------------------------------ Amdahl


def test_the_prediction_stands_beside_the_measurement() -> None:
    """Half of the step, made 5 times faster: 0.5 + 0.1 = 0.6 of the step."""
    proof = prove(account(0.6, share=0.5), Bounds(), micro(5.0))
    predicted = proof.cells[0].predicted
    assert predicted is not None
    assert predicted.share == pytest.approx(0.5, rel=0.01)
    assert math.exp(predicted.d) == pytest.approx(0.6, rel=0.01)
    assert predicted.gap == ""
    assert not any("predicted" in flag for flag in proof.flags)


@pytest.mark.parametrize(("ratio", "words"), [(0.5, "more is gained"), (0.9, "part of the gain is lost")])
def test_a_gap_is_said_and_refuses_nothing(ratio: float, words: str) -> None:
    proof = prove(account(ratio, share=0.5), Bounds(), micro(5.0))
    assert proof.passed
    assert words in proof.flags[0]


def test_a_slot_with_times_of_its_own_says_its_share() -> None:
    made = account(0.8, device="cpu")
    named = with_graphs(made, STOCK, seconds=(("attention_decode", 0.001),), share=None, launches=())
    named = with_graphs(named, KEPT, share=None)
    predicted = prove(named, Bounds(), micro(2.0)).cells[0].predicted
    assert predicted is not None
    assert predicted.share == pytest.approx(0.001 / STEP["decode 1024 x 1"], rel=0.01)


def test_nothing_is_predicted_without_a_gain_or_a_profile() -> None:
    assert prove(account(), Bounds()).cells[0].predicted is None
    bare = with_graphs(account(), STOCK, seconds=())
    assert prove(bare, Bounds(), micro(2.0)).cells[0].predicted is None


# ------------------------------------------------------------------------------------------------ several at once


def campaign(a: float, b: float, both: float) -> Account:
    made = account(a)
    of = {STOCK: 1.0, "a": a, "b": b, "a + b": both}
    noise = [0.0003 * ((5 * i) % 7 - 3) for i in range(200)]
    laps = tuple(
        Lap(c.name, arm, r, STEP[c.name] * ratio * (1 + noise[13 * r + 3 * i + j]))
        for r in range(6)
        for i, c in enumerate(made.cells)
        for j, (arm, ratio) in enumerate(of.items())
    )
    slots = (Slot("attention_decode", "a", ("split_kv",), 16), Slot("rms_norm", "b", ("norm_k",), 33))
    runs = {STOCK: (("nvjet", 64),), "a": (("split_kv", 16),), "b": (("norm_k", 33),), "a + b": (("split_kv", 16), ("norm_k", 33))}
    graphs = tuple(replace(accounts.stock_graphs(c), arm=arm, launches=runs[arm], seconds=()) for c in made.cells for arm in of)
    null = tuple(x for x in made.likeness if x.arm == STOCK)
    alike = tuple(Likeness(accounts.CELLS[0].name, arm, STOCK, 7e-4, 5e-3, 0.97, 256) for arm in list(of)[1:])
    peaks = tuple((arm, 1 << 30) for arm in of)
    planted = tuple(accounts.planted(made.cells[0], slot=slot) for slot in slots)
    return replace(made, arms=tuple(of), slots=slots, laps=laps, graphs=graphs, likeness=(*null, *alike), peak_bytes=peaks, planted=planted)


def test_gains_that_add_up_show_no_interaction() -> None:
    found = together(campaign(0.8, 0.9, 0.8 * 0.9), Bounds())
    assert [p.outcome for p in found.proofs] == [Outcome.PASSED] * 3
    assert found.outcome is Outcome.PASSED
    assert len(found.interactions) == len(STEP) + 1
    assert all("no interaction is shown" in i.said for i in found.interactions if i.cell == "all cells")
    assert found.slowest == "b"
    assert found.said.startswith("slowest link: b adds +11.")


def test_an_interaction_is_shown_and_the_slowest_link_is_named() -> None:
    found = together(campaign(0.8, 0.9, 0.82), Bounds())
    whole = next(i for i in found.interactions if i.cell == "all cells")
    assert whole.estimate.d == pytest.approx(math.log(0.82 / (0.8 * 0.9)), abs=0.01)
    assert "less than each alone promises" in whole.said
    assert found.slowest == "b"
    assert "leave it out" in found.said, "with a alone it is faster"


def test_a_campaign_has_its_own_arms() -> None:
    with pytest.raises(ValueError, match="each task alone"):
        together(account(), Bounds())


@pytest.mark.parametrize(
    ("part", "name", "found"),
    [
        ("_kernel", "void at::native::elementwise_kernel<128, 4>(int)", False),
        ("_kernel", "_kernel", True),
        ("split_kv", "split_kv_decode", True),
        ("rms_norm", "add_rms_norm", False),
        ("add", "void at::native::vectorized<at::native::add<float>>", True),
        ("k(", "k(int)", True),
        ("", "anything", False),
    ],
)
def test_a_kernel_is_known_by_the_beginning_of_a_word_of_its_name(part: str, name: str, found: bool) -> None:
    assert runs(part, name) is found
