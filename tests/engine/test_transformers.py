"""The transformers engine on a CPU: tiny models with random weights, kernels in plain torch."""

import gc
import math
import re
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from keepfast.engine import slots, torch_account, torch_cells, torch_model, torch_reference  # noqa: E402
from keepfast.engine.base import STOCK, Cell  # noqa: E402
from keepfast.engine.proof import Bounds, prove  # noqa: E402
from keepfast.engine.torch_account import account  # noqa: E402
from keepfast.engine.torch_entry import load  # noqa: E402
from keepfast.engine.torch_graph import WARM, Card, Host  # noqa: E402
from keepfast.engine.torch_likeness import agreement, compared  # noqa: E402
from keepfast.engine.torch_main import answered  # noqa: E402
from keepfast.engine.torch_planted import FAULTS  # noqa: E402
from keepfast.engine.torch_quantise import quantised  # noqa: E402
from keepfast.engine.torch_seat import Crashed, Tally  # noqa: E402
from keepfast.engine.transformers import Arm, Fill, Plan, TransformersEngine, named_models  # noqa: E402
from keepfast.errors import MachineError, TaskError  # noqa: E402
from keepfast.model.proof import Outcome, Why  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")

DECODE, PREFILL = Cell("decode", 24, 2), Cell("prefill", 16, 2)
REFERENCE = Path(torch_reference.__file__)
GPT_OSS = (
    '{"architecture": "GptOssForCausalLM", "layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "head_dim": 16, "intermediate": 32, '
    '"vocab": 128, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 16}'
)
QWEN_MOE = (
    '{"architecture": "Qwen3MoeForCausalLM", "layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "head_dim": 16, "intermediate": 96, '
    '"moe_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2, "vocab": 128}'
)
GEMMA = (
    '{"architecture": "GemmaForCausalLM", "layers": 1, "hidden": 32, "heads": 2, "kv_heads": 1, "head_dim": 16, "intermediate": 48, '
    '"vocab": 64}'
)
DEEPSEEK = (
    '{"architecture": "DeepseekV3ForCausalLM", "layers": 1, "hidden": 64, "heads": 4, "kv_heads": 4, "intermediate": 64, "vocab": 64, '
    '"moe_intermediate_size": 32, "n_routed_experts": 4, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 2, "q_lora_rank": 32, '
    '"kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16, "first_k_dense_replace": 1}'
)


def reference(slot: str, **more: object) -> Fill:
    """The slot filled with what it replaces."""
    kind = slots.kind(slot)
    return Fill(slot, str(REFERENCE), slot, slots.shown(kind, more.pop("extra", ())), f"a-{slot}", **more)


def kernel(folder: Path, slot: str, body: str, **more: object) -> Fill:
    """A kernel with this body, and the arguments of the slot's signature."""
    names = [o.name for o in slots.kind(slot).offers if o.must]
    path = folder / f"{slot}.py"
    path.write_text(f"import torch\ndef kernel({', '.join(names)}):\n    {body}\n")
    return Fill(slot, str(path), "kernel", slots.kind(slot).signature, f"my-{slot}", **more)


def plan(*fills: Fill, cells: tuple[Cell, ...] = (DECODE,), **more: object) -> Plan:
    arms = (Arm(STOCK), Arm("kept", fills)) if fills else (Arm(STOCK),)
    given = {"model": "tiny", "dtype": "float32", "device": "cpu", "rounds": 2, "steps": 2, "tokens": 4, "threads": 1, "arms": arms}
    return Plan(**(given | {"cells": cells} | more))


def measured(asked: Plan):
    return account(asked, lambda line: None)


def likeness(found, arm: str, against: str, cell: Cell = DECODE):
    return next(x for x in found.likeness if (x.cell, x.arm, x.against) == (cell.name, arm, against))


def launches(found, arm: str, cell: Cell = DECODE):
    return dict(next(g for g in found.graphs if (g.cell, g.arm) == (cell.name, arm)).launches)


def test_all_slots_together_compute_what_stock_computes_and_are_called_as_often_as_expected():
    fills = tuple(reference(name) for name in slots.NAMES if name != "moe")
    found = measured(plan(*fills, cells=(DECODE, PREFILL)))
    for cell in (DECODE, PREFILL):
        assert likeness(found, "kept", STOCK, cell).kl_worst < 1e-9
        assert likeness(found, "kept", STOCK, cell).top1 == 1.0
    assert likeness(found, "kept", STOCK).greedy == 1.0
    expected = {"attention_decode": 2, "rms_norm": 1, "add_rms_norm": 4, "rotary_cache": 2, "mlp_activation": 2, "linear": 14}
    assert launches(found, "kept") == expected
    assert launches(found, "kept", PREFILL)["attention_prefill"] == 2
    assert {s.name: s.expected for s in found.slots if s.name in expected} == expected
    assert launches(found, STOCK) == {}
    assert sorted((x.cell, x.arm, x.round) for x in found.laps) == sorted(
        (c.name, a, n) for c in (DECODE, PREFILL) for a in (STOCK, "kept") for n in range(2)
    )
    assert all(lap.seconds > 0 for lap in found.laps)


def test_rms_norm_alone_takes_every_norm_and_leaves_other_arms_as_they_are():
    fill = reference("rms_norm")
    found = measured(plan(arms=(Arm(STOCK), Arm("kept", (fill,)), Arm("again"), Arm("eager", attention="eager"))))
    assert launches(found, "kept") == {"rms_norm": 5}
    assert launches(found, "again") == launches(found, "eager") == {}
    assert likeness(found, "again", STOCK).kl_worst == likeness(found, STOCK, "stock again").kl_worst == 0.0


def test_the_null_has_a_run_in_float32_which_leaves_the_weights_as_they_were():
    found = measured(plan(dtype="bfloat16", cells=(DECODE, PREFILL)))
    for cell in (DECODE, PREFILL):
        assert 0 < likeness(found, STOCK, "stock in float32", cell).kl_mean < 1e-3
        assert likeness(found, STOCK, "stock again", cell).kl_worst == 0.0
    model = torch_model.load(plan(dtype="bfloat16"), "cpu")
    before = [p.clone() for p in model.parameters()]
    with torch_model.in_float32(model):
        assert all(p.dtype == torch.float32 for p in model.parameters())
    assert all(torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize(
    ("slot", "body"),
    [
        ("rms_norm", "return torch.zeros_like(input)"),
        ("mlp_activation", "return gate + up"),
        ("attention_decode", "return q.clone()"),
        ("rotary_cache", "pass"),
    ],
)
def test_a_kernel_that_computes_something_else_shows_in_the_logits(tmp_path, slot, body):
    found = measured(plan(kernel(tmp_path, slot, body)))
    assert likeness(found, "kept", STOCK).kl_mean > 1e-6 > likeness(found, STOCK, "stock again").kl_mean


SLOTS = ("attention_decode", "add_rms_norm", "rotary_cache", "mlp_activation", "linear")
LONG = Cell("decode", 600, 1)


def test_random_weights_are_sensitive_to_every_slot_at_any_context():
    found = measured(plan(*(reference(name) for name in SLOTS), dtype="bfloat16", cells=(DECODE, LONG), tokens=8))
    assert {(p.slot, p.fault, p.alike.cell) for p in found.planted} == {
        (s, f, c.name) for s in SLOTS for f in FAULTS for c in (DECODE, LONG)
    }
    assert [c.state for c in prove(found, Bounds()).checks if c.name == "outputs"] == ["ok"]
    seen = measured(plan(reference("attention_prefill"), reference("rms_norm"), cells=(PREFILL,)))
    assert {p.slot for p in seen.planted} == {"attention_prefill", "rms_norm"}
    assert min(p.alike.kl_mean for p in seen.planted) > 1e-5


@pytest.mark.parametrize(
    ("slot", "body"), [("mlp_activation", "return gate * 0"), ("attention_decode", "return q * 0"), ("rotary_cache", "q.zero_()")]
)
def test_zeros_are_refused_by_a_sensitive_model_and_by_a_blind_one_too(tmp_path, slot, body):
    zeros = kernel(tmp_path, slot, body)
    why = Why.OUTPUTS_DIFFER
    found = {w: prove(measured(plan(zeros, cells=(LONG,), dtype="bfloat16", weights=w)), Bounds()) for w in ("sensitive", "library")}
    assert why in {r.why for r in found["sensitive"].reasons}
    assert {r.why for r in found["library"].reasons} & {why, Why.NOT_SHOWN}


def test_zeros_that_a_blind_model_does_not_show_are_refused_with_the_factor(tmp_path):
    found = measured(plan(kernel(tmp_path, "rotary_cache", "q.zero_()"), cells=(LONG,), weights="library"))
    assert likeness(found, "kept", STOCK, LONG).kl_mean < 1e-5, "within the bound"
    said = next(r.said for r in prove(found, Bounds()).reasons if r.why is Why.NOT_SHOWN)
    assert re.search(r"rotary_cache with .*, moves the logits by a KL of .* nats, [\d.]+ times below what would be refused", said)


def test_a_product_of_few_rows_leaves_a_prompt_to_the_model_and_has_the_vocabularys_too(tmp_path):
    whole = kernel(tmp_path, "linear", "assert input.is_contiguous()\n    return input @ weight.T", only="*", rows=2)
    found = measured(plan(whole, cells=(DECODE, PREFILL)))
    assert launches(found, "kept") == {"linear": 15}
    assert launches(found, "kept", PREFILL) == {"linear": 1}, "the vocabulary's, of the last token of each of two prompts"
    for cell in (DECODE, PREFILL):
        assert likeness(found, "kept", STOCK, cell).kl_worst < 1e-8
    assert found.slots[0].expected == 15


def test_a_kernel_for_the_other_phase_never_runs(tmp_path):
    found = measured(plan(kernel(tmp_path, "rms_norm", "raise RuntimeError", phase="prefill")))
    assert launches(found, "kept") == {}
    assert found.slots[0].expected == 5


def test_one_slot_may_have_a_kernel_for_each_phase(tmp_path):
    decode, prefill = reference("rms_norm", phase="decode"), kernel(tmp_path, "rms_norm", "return input * 0", phase="prefill")
    found = measured(plan(decode, prefill, cells=(DECODE, PREFILL)))
    assert likeness(found, "kept", STOCK).kl_worst < 1e-9
    assert likeness(found, "kept", STOCK, PREFILL).kl_mean > 1e-6


@pytest.mark.parametrize(
    ("slot", "body", "said"),
    [
        (
            "rms_norm",
            "raise ValueError('no such block')",
            "ValueError: no such block \\(line 3 of rms_norm.py\\); It was given input float32 \\[2, 64\\]",
        ),
        ("rms_norm", "return input.double()", "it returned float64 \\[2, 64\\], and the model needs float32 \\[2, 64\\]"),
        ("rms_norm", "return input[:1]", "it returned float32 \\[1, 64\\]"),
        ("mlp_activation", "return None", "it returned None"),
    ],
)
def test_a_kernel_that_breaks_the_contract_is_refused_with_its_words(tmp_path, slot, body, said):
    found = measured(plan(kernel(tmp_path, slot, body), cells=(DECODE, PREFILL)))
    assert {lap.arm for lap in found.laps} == {STOCK}
    proof = prove(found, Bounds())
    assert proof.outcome is Outcome.REFUSED
    crashed = [r.said for r in proof.reasons if r.why is Why.CRASHED]
    wanted = f"kept: {DECODE.name}: slot {slot}, task my-{slot}: "
    assert [words.partition(wanted)[:2] for words in crashed] == [(f"{c.name}: ", wanted) for c in (DECODE, PREFILL)]
    assert re.search(said, crashed[0])


def test_a_kernel_that_raises_late_is_refused_and_the_others_are_measured(tmp_path):
    path = tmp_path / "late.py"
    path.write_text("calls = []\ndef kernel(gate, up):\n    calls.append(1)\n    assert len(calls) < 60\n    return gate * up.sigmoid()\n")
    late = Fill("mlp_activation", str(path), "kernel", slots.kind("mlp_activation").signature, "late")
    found = measured(plan(arms=(Arm(STOCK), Arm("late", (late,)), Arm("fine", (reference("rms_norm"),))), rounds=9))
    assert found.notes[0].startswith(f"late: {DECODE.name}: slot mlp_activation, task late: AssertionError")
    assert Why.CRASHED in {r.why for r in prove(found, Bounds(), (), "late").reasons}
    assert sum(lap.arm == "fine" for lap in found.laps) == sum(lap.arm == STOCK for lap in found.laps) == 9


def test_a_kernel_that_writes_into_the_shared_cache_ends_the_account_and_is_refused(tmp_path):
    lines = []
    found = account(plan(kernel(tmp_path, "rotary_cache", "k_cache.zero_()"), cells=(DECODE, LONG)), lines.append)
    assert (found.laps, found.arms) == ((), (STOCK, "kept"))
    crashed = [r.said for r in prove(found, Bounds()).reasons if r.why is Why.CRASHED]
    said = f"{DECODE.name}: slot rotary_cache, task my-rotary_cache: arm kept wrote into the cache before the place of the new token"
    assert [said in words for words in crashed] == [True, True]
    assert lines[-1].startswith("ended: arm kept wrote into the cache")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise RuntimeError('no such card')", "k.py does not load: RuntimeError: no such card \\(line 1 of k.py\\)"),
        ("def other(): pass", "k.py defines no function `kernel`"),
    ],
)
def test_a_kernel_that_does_not_load_is_refused_and_nothing_is_measured_for_it(tmp_path, body, said):
    (tmp_path / "k.py").write_text(body + "\n")
    fill = Fill("rms_norm", str(tmp_path / "k.py"), "kernel", slots.kind("rms_norm").signature, "broken")
    found = measured(plan(fill))
    assert (found.arms, found.laps) == ((STOCK, "kept"), ())
    proof = prove(found, Bounds())
    assert (proof.outcome, proof.reasons[0].why) == (Outcome.REFUSED, Why.CRASHED)
    assert re.search(said, proof.reasons[0].said)
    both = measured(plan(arms=(Arm(STOCK), Arm("broken", (fill,)), Arm("fine", (reference("rms_norm"),)))))
    assert {lap.arm for lap in both.laps} == {STOCK, "fine"}
    assert [r.why for r in prove(both, Bounds(rounds=2), (), "broken").reasons][:1] == [Why.CRASHED]


def test_what_the_model_cannot_do_with_a_kernels_output_is_the_kernels(tmp_path):
    found = measured(plan(kernel(tmp_path, "rotary_cache", "q.resize_(0)")))
    assert {lap.arm for lap in found.laps} == {STOCK}
    assert found.notes[0].startswith(f"kept: {DECODE.name}: IndexError: ")


@pytest.mark.parametrize(("end", "how"), [("os.kill(os.getpid(), 11)", "signal 11"), ("os._exit(3)", "status 3")])
def test_a_kernel_that_takes_the_process_with_it_is_refused(tmp_path, end, how):
    found = TransformersEngine(plan(kernel(tmp_path, "rms_norm", f"import os; {end}"))).account(2)
    proof = prove(found, Bounds(cells=(DECODE.name,)))
    assert (proof.outcome, proof.reasons[0].why) == (Outcome.REFUSED, Why.CRASHED)
    assert f"kept: the process that ran it ended with {how} while its code ran; its last lines: " in proof.reasons[0].said
    assert DECODE.name in proof.reasons[0].said


def test_an_interrupted_account_goes_on_with_the_cell_it_was_at(tmp_path, monkeypatch):
    asked = plan(reference("rms_norm"), kernel(tmp_path, "mlp_activation", "return 'no tensor'"), cells=(DECODE, PREFILL), rounds=2)
    asked = replace(asked, arms=(*asked.arms[:1], Arm("kept", asked.arms[1].fills[:1]), Arm("bad", asked.arms[1].fills[1:])))
    made, done = torch_account._cell, []

    def cell(one, *rest):
        if one == PREFILL and not done.count(PREFILL):
            done.append(one)
            raise KeyboardInterrupt
        done.append(one)
        return made(one, *rest)

    monkeypatch.setattr(torch_account, "_cell", cell)
    with pytest.raises(KeyboardInterrupt):
        account(asked, print, kept=tmp_path / "kept")
    said: list[str] = []
    found = account(asked, said.append, kept=tmp_path / "kept")
    assert done == [DECODE, PREFILL, PREFILL], "the first cell was not measured again"
    assert any("before the proof was interrupted" in line for line in said)
    assert {lap.cell for lap in found.laps} == {DECODE.name, PREFILL.name}
    assert prove(found, Bounds(), (), "bad").outcome is Outcome.REFUSED, "an arm that ended in the first cell is still refused"
    assert any(note.startswith("bad: decode 24 x 2") for note in found.notes)


def test_an_account_that_came_to_its_end_keeps_nothing(tmp_path):
    TransformersEngine(plan(reference("rms_norm")), keep=tmp_path / "engine").account(1)
    assert list((tmp_path / "engine").glob("*")) == []


def test_a_process_that_ends_in_stock_is_no_verdict(tmp_path):
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\necho 'keepfast-arm: kept'\necho 'keepfast-arm: stock'\nexit 3\n")
    script.chmod(0o755)
    with pytest.raises(MachineError, match="ended with status 3 and no account"):
        TransformersEngine(plan(reference("rms_norm")), python=str(script)).account(2)
    script.write_text("#!/bin/sh\necho 'keepfast-arm: kept'\nkill -9 $$\n")
    with pytest.raises(MachineError, match="ended with status -9"):
        TransformersEngine(plan(reference("rms_norm")), python=str(script)).account(2)


def test_a_card_that_computes_no_more_ends_the_account_with_the_arm_that_was_worn(monkeypatch, tmp_path):
    late = "raise RuntimeError('CUDA error: an illegal memory access was encountered')"
    for alive, cells in ((False, 0), (True, 2)):
        monkeypatch.setattr(Host, "alive", lambda self, alive=alive: alive)
        found = measured(plan(kernel(tmp_path, "rms_norm", late), cells=(DECODE, PREFILL)))
        assert len({lap.cell for lap in found.laps}) == cells
        assert {r.why for r in prove(found, Bounds(rounds=2)).reasons} >= {Why.CRASHED}
    monkeypatch.setattr(Host, "alive", lambda self: False)
    arms = (Arm(STOCK), Arm("kept", (reference("rms_norm"),)), Arm("gqa", attention="sdpa_gqa"))
    monkeypatch.setattr(torch_cells._Common, "forward", lambda self, arm: self.model if arm != "gqa" else none)
    with pytest.raises(MachineError, match="the card computes no more after arm gqa"):
        measured(plan(arms=arms, skip=True))


def none(**more):
    raise RuntimeError("CUDA error: an illegal memory access was encountered")


def test_a_profiler_that_sees_nothing_costs_the_graphs_only(monkeypatch):
    def blind(*more):
        raise MachineError("the profiler saw no kernel", next_step="close the other one")

    monkeypatch.setattr(Host, "profile", blind)
    found = measured(plan(reference("rms_norm"), rounds=3))
    assert (len(found.laps), found.graphs) == (6, ())
    assert f"no profile of kept at {DECODE.name}: the profiler saw no kernel; close the other one" in found.notes
    assert {r.why for r in prove(found, Bounds()).reasons} >= {Why.NOT_SHOWN}


@pytest.mark.parametrize(
    ("model", "fill", "said"),
    [
        (GEMMA, reference("rms_norm"), "GemmaForCausalLM does not compute what the slot replaces"),
        (GEMMA, reference("mlp_activation"), "its activation is"),
        (GPT_OSS, reference("attention_decode"), "needs it: GptOssAttention has one a head"),
        (GPT_OSS, reference("attention_prefill", extra=("sinks",)), "needs it: GptOssAttention looks back 16 tokens"),
        (GPT_OSS, reference("rotary_cache"), "roll their cache"),
        (GPT_OSS, reference("moe"), "GptOssExperts has has_bias = True"),
        (DEEPSEEK, reference("rotary_cache"), "DeepseekV3Attention has"),
        ("tiny", reference("moe"), "has no experts"),
        ("tiny", reference("linear", only="*.up_prj"), "names no linear layer"),
        ("tiny", reference("rms_norm", arguments=(("input", "bfloat16"),)), "`input` is bfloat16 in the task, and the model gives float32"),
    ],
)
def test_a_model_that_the_slot_does_not_fit_is_refused_with_what_it_has(model, fill, said):
    attention = "eager" if model == GPT_OSS else "sdpa"
    with pytest.raises(TaskError, match=said):
        measured(plan(fill, model=model, attention=attention))


def test_experts_and_norms_of_queries_are_left_or_taken_as_the_slot_says():
    found = measured(plan(reference("moe"), reference("rotary_cache"), reference("rms_norm"), model=QWEN_MOE))
    assert likeness(found, "kept", STOCK).kl_worst < 1e-8
    assert launches(found, "kept") == {"rms_norm": 5, "moe": 2, "rotary_cache": 2}


def test_sinks_and_windows_reach_the_kernel():
    found = measured(
        plan(reference("attention_decode", extra=("sinks",)), model=GPT_OSS, attention="eager", cells=(Cell("decode", 24, 2),))
    )
    assert likeness(found, "kept", STOCK).kl_worst < 1e-8
    assert likeness(found, STOCK, "stock again").kl_worst == 0.0  # a rolling cache is set back
    with pytest.raises(TaskError, match="are full within the text"):
        measured(plan(model=GPT_OSS, attention="eager", cells=(Cell("decode", 17, 1),)))


def test_latent_attention_runs():
    found = measured(plan(reference("attention_decode"), model=DEEPSEEK))
    assert likeness(found, "kept", STOCK).kl_worst < 1e-8


def test_a_quantised_linear_gets_codes_and_scales(tmp_path):
    path = tmp_path / "linear.py"
    path.write_text(
        "import torch\ndef kernel(input, weight, weight_scale):\n"
        "    assert weight.dtype == torch.int8 and weight_scale.shape == weight.shape[:1]\n"
        "    return input @ (weight.float() * weight_scale[:, None]).T\n"
    )
    signature = slots.shown(slots.kind("linear"), ("weight_scale",))
    fill = Fill("linear", str(path), "kernel", signature, "q", only="*.mlp.*", arguments=(("weight", "int8"),))
    found = measured(plan(fill))
    assert launches(found, "kept") == {"linear": 6}
    assert 0 < likeness(found, "kept", STOCK).kl_mean < 1e-3


@pytest.mark.parametrize("kind", ["int8", "float8_e4m3fn", "float8_e5m2"])
def test_quantisation_by_row_keeps_each_row_to_its_own_scale(kind):
    weight = torch.randn(5, 64, generator=torch.Generator().manual_seed(1)) * torch.tensor([1e-3, 1.0, 50.0, 0.0, 7.0])[:, None]
    codes, scale = quantised(weight, kind, "")
    off = (codes.float() * scale[:, None] - weight).abs().amax(dim=1)
    assert bool((off <= weight.abs().amax(dim=1) * (0.13 if kind != "int8" else 0.005)).all())
    with pytest.raises(TaskError, match="cannot be float16"):
        quantised(weight, "float16", "")


def test_a_checkpoint_gives_what_its_weights_say(tmp_path):
    model = torch_model.load(plan(), "cpu")
    model.save_pretrained(tmp_path)
    found = measured(plan(reference("rms_norm"), model=str(tmp_path), dtype="float32"))
    assert found.model == f"LlamaForCausalLM, 2 layers, 106,816 parameters, {tmp_path.name}"
    assert likeness(found, "kept", STOCK).kl_worst < 1e-9


def test_a_cache_is_prefilled_or_drawn_as_the_plan_says():
    model = torch_model.load(plan(), "cpu")
    with torch.no_grad():
        one, same = (torch_model.filled(model, DECODE, plan(fill=f), 24).held.layers[0] for f in ("prefill", ""))
        drawn = torch_model.filled(model, DECODE, plan(fill="random"), 24).held.layers[0]
    assert torch.equal(one.keys[:, :, :24], same.keys[:, :, :24])
    assert abs(float(drawn.keys.std()) - 1) < 0.1
    assert not one.keys[:, :, 24:].any()


def test_a_step_is_repeated_at_its_place():
    model = torch_model.load(plan(), "cpu")
    with torch.no_grad():
        cache = torch_model.filled(model, DECODE, plan(), 24)
        held = cache.prefix(24)
        ids, at = torch.full((2, 1), 5), torch.full((2, 1), 24)
        logits = []
        for _ in range(2):
            cache.place(24)
            logits.append(model(input_ids=ids, position_ids=at, past_key_values=cache.held).logits)
    assert torch.equal(*logits)
    assert cache.prefix(24) == held
    cache.held.layers[1].values[0, 0, 3, 0] += 1
    assert cache.prefix(24) != held


@pytest.mark.parametrize("name", sorted(named_models()))
def test_every_named_model_can_be_made(name):
    asked = plan(model=name, dtype="bfloat16", cells=(Cell("decode", 1024, 1),))
    with torch.no_grad():
        model = torch_model.load(asked, "meta")
        need = torch_model.needed(model, asked.cells[0], asked)
    assert need.weights > 100_000
    assert need.cache > 0


def test_the_flagship_has_the_published_shape():
    asked = plan(model="llama-3.1-8b", dtype="bfloat16", cells=(Cell("decode", 8191, 8),))
    with torch.no_grad():
        model = torch_model.load(asked, "meta")
        need = torch_model.needed(model, asked.cells[0], asked)
    assert sum(p.numel() for p in model.parameters()) == 8_030_261_248
    assert need.weights == 2 * 8_030_261_248
    assert need.cache == 2 * 32 * 8 * 8 * 8192 * 128 * 2
    assert need.peak(float32=True, arms=2) < 140e9 < need.peak(float32=False, arms=60), "a graph of each arm has a pool"


def test_what_does_not_fit_is_refused_before_anything_runs():
    asked = plan(model="llama-3.1-8b", dtype="bfloat16", cells=(Cell("decode", 1024, 1), Cell("decode", 131072, 64)))
    with torch.no_grad():
        model = torch_model.load(asked, "meta")
        torch_model.refuse_what_does_not_fit(model, replace(asked, cells=asked.cells[:1]), 140 * 10**9)
        with pytest.raises(MachineError, match=r"decode 131072 x 64 needs about [\d.]+ GB \([\d,]+ bytes\), and 140.0 GB are free"):
            torch_model.refuse_what_does_not_fit(model, asked, 140 * 10**9)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ('{"architecture": "LlamaForCausualLM"}', "Did you mean `LlamaForCausalLM`"),
        ('{"architecture": "LlamaForCausalLM", "layer": 2}', "LlamaConfig has no `layer`"),
        ('{"base": "tiny", "architecture": "MambaForCausalLM", "kv_heads": 1}', "MambaConfig has no"),
    ],
)
def test_a_configuration_that_the_library_does_not_know_is_refused(model, said):
    with pytest.raises(TaskError, match=said):
        torch_model.config(plan(model=model))


def test_an_arm_that_cannot_run_is_left_out_when_the_plan_says_so():
    arms = (
        Arm(STOCK),
        Arm("flash", attention="flash_attention_2"),
        Arm("exact", attention="sdpa_gqa_exact"),
        Arm("gqa", attention="sdpa_gqa"),
    )
    with pytest.raises(TaskError, match="attention flash_attention_2"):
        measured(plan(arms=arms))
    found = measured(plan(arms=arms, skip=True, cells=(DECODE, PREFILL)))
    assert found.arms == (STOCK, "exact", "gqa")
    assert any(note.startswith("arm flash left out: TaskError") for note in found.notes)
    assert all(likeness(found, arm, STOCK, cell).kl_worst < 1e-9 for arm in ("exact", "gqa") for cell in (DECODE, PREFILL))
    assert likeness(found, "exact", STOCK).tokens == DECODE.batch  # at its one length


def test_tunables_and_neighbours_belong_to_one_task(tmp_path):
    entries = []
    for number, value in enumerate((16, 32)):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "helper.py").write_text(f"NUMBER = {number}\n")
        (folder / "k.py").write_text("from keepfast_tunables import BLOCK\nfrom helper import NUMBER\ndef f():\n    return BLOCK, NUMBER\n")
        entries.append(load(Fill("rms_norm", str(folder / "k.py"), "f", "", "t", tunables=f"BLOCK = {value}\n"), number))
    assert [entry.function() for entry in entries] == [(16, 0), (32, 1)]
    (tmp_path / "bad.py").write_text("x = 1\nraise RuntimeError('at import')\n")
    (tmp_path / "packs.py").write_text("def prepare(weight):\n    return weight\ndef f(x, packed):\n    return x\n")
    for name, symbol, said in (
        ("packs.py", "f", "packs.py defines `prepare`, which no slot of an engine calls yet"),
        ("bad.py", "f", r"bad.py does not load: RuntimeError: at import \(line 2 of bad.py\)"),
        ("0/k.py", "g", "defines no function `g`"),
    ):
        with pytest.raises(TaskError, match=said):
            load(Fill("rms_norm", str(tmp_path / name), symbol, "", "t", tunables="BLOCK = 1\n"), 9)


def test_likeness_of_logits():
    rows = torch.log(torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]]))
    other = torch.log(torch.tensor([[0.25, 0.5, 0.25], [0.1, 0.1, 0.8]]))
    found = compared([rows], [other])
    assert found.kl_worst == pytest.approx(0.25 * math.log(2))
    assert found.kl_mean == pytest.approx(0.125 * math.log(2))
    assert (found.top1, found.tokens) == (0.5, 2)
    assert compared([rows], [torch.full_like(rows, math.nan)]).kl_worst == math.inf
    assert agreement(torch.tensor([[1, 2, 3, 4]]), torch.tensor([[1, 2, 9, 4]])) == 0.5


class FakeCuda:
    """torch.cuda as a list of what was asked of it."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.capturing = False
        self.broken = False

    def __call__(self, what: str) -> None:
        self.told.append(what)

    def Stream(self):
        return self

    def current_stream(self):
        return self

    def wait_stream(self, other) -> None:
        self("wait")

    @contextmanager
    def stream(self, side):
        self("side")
        try:
            yield
        finally:
            self("main")

    def synchronize(self) -> None:
        assert not self.capturing
        self("synchronise")

    def CUDAGraph(self):
        return self

    def set_sync_debug_mode(self, mode) -> None:
        self(f"waiting {mode}")

    def graph_pool_handle(self):
        return (0, 1)

    def set_stream(self, stream) -> None:
        assert stream is self
        self("stream set back")

    def current_device(self) -> int:
        return 0

    @contextmanager
    def graph(self, graph, pool, stream, capture_error_mode):
        assert (pool, stream, capture_error_mode) == ((0, 1), self, "thread_local")
        assert not gc.isenabled()
        self.capturing = True
        self("capture")
        try:
            yield
        finally:
            self.capturing = False
            if self.broken:
                raise RuntimeError("CUDA error: operation failed due to a previous error during capture")
        self("captured")

    def replay(self) -> None:
        self("replay")

    def Event(self, enable_timing):
        assert enable_timing
        return self

    def record(self) -> None:
        self("record")

    def elapsed_time(self, end) -> float:
        return 2.5

    def reset_peak_memory_stats(self) -> None:
        self("reset")

    def max_memory_allocated(self) -> int:
        return 77

    def mem_get_info(self):
        return (5, 9)


def test_a_step_is_warm_before_its_capture_and_nothing_is_set_back_inside():
    cuda = FakeCuda()
    card = Card(cuda, None)
    run = card.captured(lambda: cuda("step") or "logits", lambda: cuda("before"))
    warm = [*["before", "step"] * (WARM - 1), "before", "waiting error", "step", "waiting default"]
    assert cuda.told == ["wait", "side", *warm, "main", "wait", "before", "synchronise", "capture", "step", "captured", "synchronise"]
    cuda.told.clear()
    assert run() == "logits"
    assert card.lap(run, lambda: cuda("before"), 2) == [2.5e-3, 2.5e-3]
    lap = ["before", "record", "replay", "record"]
    assert cuda.told == ["replay", "before", "replay", *lap, *lap, "synchronise"]
    assert (card.peak(run), card.free()) == (77, 5)


def test_a_broken_capture_is_mended_and_says_what_the_step_raised(monkeypatch):
    cuda, steps, pools = FakeCuda(), [], []
    card, ended = Card(cuda, None), [True]

    def step():
        steps.append(1)
        if len(steps) == WARM + 1:
            raise Crashed("no such block")

    def end(device, pool):
        if not ended[0]:
            raise RuntimeError("not currently recording")
        pools.append(("end", device, pool))

    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", end, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_releasePool", lambda *given: pools.append(("release", *given)), raising=False)
    cuda.broken = True
    with pytest.raises(Crashed, match="no such block"):
        card.captured(step, lambda: None)
    assert (pools, cuda.told[-1]) == ([("end", 0, (0, 1)), ("release", 0, (0, 1))], "stream set back")
    pools.clear()
    steps.clear()
    ended[0] = cuda.broken = False  # it raised, and the capture itself ended well: its graph gives the pool back
    with pytest.raises(Crashed, match="no such block"):
        card.captured(step, lambda: None)
    assert pools == []
    assert gc.isenabled()


def test_what_waits_for_the_card_raises_before_the_capture():
    cuda = FakeCuda()

    def step():
        if cuda.told[-1] == "waiting error":
            raise RuntimeError("called a synchronizing CUDA operation")

    with pytest.raises(RuntimeError, match="synchronizing"):
        Card(cuda, None).captured(step, lambda: None)
    assert "capture" not in cuda.told
    assert cuda.told[-1] == "main"
    assert "waiting default" in cuda.told


def test_a_profile_that_came_too_late_is_made_again():
    class Profiler:
        ProfilerActivity = type("Activity", (), {"CPU": 1, "CUDA": 2})
        seen = []  # noqa: RUF012

        @contextmanager
        def profile(self, activities):
            yield self

        def export_chrome_trace(self, path):
            self.seen.append(path)
            event = '{"ph": "X", "cat": "kernel", "name": "k", "dur": 3, "args": {"graph node id": 1}}' if len(self.seen) > 1 else ""
            Path(path).write_text(f'{{"traceEvents": [{event}]}}')

    found = Card(FakeCuda(), Profiler()).profile(lambda: None, lambda: None, Tally(timed=False))
    assert (found.share, len(Profiler.seen)) == (1.0, 2)
    Profiler.seen.clear()
    Profiler.export_chrome_trace = lambda self, path: Path(path).write_text('{"traceEvents": []}')
    with pytest.raises(MachineError, match="saw no kernel"):
        Card(FakeCuda(), Profiler()).profile(lambda: None, lambda: None, Tally(timed=False))


def test_a_profile_is_one_step_read_from_the_profilers_own_file():
    class Profiler:
        ProfilerActivity = type("Activity", (), {"CPU": 1, "CUDA": 2})

        @contextmanager
        def profile(self, activities):
            cuda("profile")
            yield self

        def export_chrome_trace(self, path):
            Path(path).write_text('{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "dur": 3, "args": {"graph node id": 1}}]}')

    cuda = FakeCuda()
    found = Card(cuda, Profiler()).profile(lambda: cuda("run"), lambda: cuda("before"), Tally(timed=False))
    assert cuda.told == ["before", "run", "before", "synchronise", "profile", "run", "synchronise"]
    assert (found.share, found.launches) == (1.0, (("k", 1),))


def test_the_engine_runs_in_a_process_of_its_own():
    lines: list[str] = []
    asked = plan(reference("rms_norm"))
    found = TransformersEngine(asked, said=lines.append).account(1)
    assert launches(found, "kept") == {"rms_norm": 5}
    assert len(found.laps) == 2
    assert lines[0].startswith("LlamaForCausalLM, 2 layers, 106,816 parameters, random weights on cpu, ")
    assert [re.sub(r", [\d.]+ s$", "", line) for line in lines[1:]] == [
        "kernels loaded, slots fit", "decode 24 x 2 (1 of 1)", "  cache filled, stock in float32", "  every arm called", "  stock captured",
        "  kept captured", "  likeness", "  3 planted faults", "  1 rounds", "  profiles",
    ]  # fmt: skip


def test_a_limit_says_where_it_was(tmp_path):
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\necho 'keepfast: decode 24 x 2 (1 of 1)'\necho 'keepfast-arm: kept'\nexec sleep 60\n")
    script.chmod(0o755)
    with pytest.raises(MachineError, match=r"no account after 2 s; it was at: decode 24 x 2 \(1 of 1\) / kept"):
        TransformersEngine(plan(reference("rms_norm")), python=str(script), limit_s=2.0).account(2)


def test_stock_against_stock_looks_at_time_only():
    from keepfast.engine import noise
    from keepfast.engine.base import AGAIN

    found = measured(plan(arms=(Arm(STOCK), Arm(AGAIN)), rounds=4, tokens=1, float32=False, dtype="bfloat16"))
    assert [(s.cell, s.rounds) for s in noise.measured(found).spreads] == [(DECODE.name, 4), (noise.WHOLE, 4)]
    assert {one.against for one in found.likeness} == {STOCK, "stock again"}


def test_the_process_says_why_there_is_no_account(monkeypatch):
    unfit = plan(replace(reference("rms_norm"), signature="f(Tensor input, Tensor weight) -> Tensor"))
    failure = answered(unfit).failure
    assert (failure.kind, failure.where) == ("task", "slot rms_norm, task a-rms_norm")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "sees no CUDA card" in answered(plan(device="cuda")).failure.what
    monkeypatch.setattr(torch_model, "load", lambda *given: 1 / 0)
    assert answered(plan()).failure.what.startswith("ZeroDivisionError")
