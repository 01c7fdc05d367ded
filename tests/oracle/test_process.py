"""The oracle as a process: what it answers on real tasks, over a socket and memfds, whatever the human's code does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from keepfast.gpu.layout import ALIGN  # noqa: E402
from keepfast.gpu.messages import Answer, Ask, Describe, Described, Fill, Filled, Measure, Measured, Mutate, Mutated  # noqa: E402
from keepfast.model import Argument  # noqa: E402
from keepfast.oracle import answers, draws  # noqa: E402
from keepfast.oracle.reference import Results, Values  # noqa: E402
from tests.oracle import kit  # noqa: E402

SEEDS = ((1, 2, 3, 4), (5, 6, 7, 8), (9, 10, 11, 12))
QUANTISE = """
def inputs(case, rng):
    return {"x": torch.randn(case.m, case.n, generator=rng, device=rng.device, dtype=torch.float32)}


def reference(x):
    scale = x.abs().amax(-1, keepdim=True) / 448
    return (x / scale).to(torch.float8_e4m3fn), scale


def compare(case, inputs, got, expected):
    back = got["q"].to(torch.float64) * got["s"].to(torch.float64)
    apart = (back - inputs["x"]).abs().amax(-1, keepdim=True) / inputs["x"].abs().amax(-1, keepdim=True)
    return None if bool((apart < 0.05).all()) else f"off by {float(apart.max()):.3f} of the row's largest"


def limit(case, inputs):
    return {"bytes": inputs["x"].nbytes * 5 / 4}
"""
OPTIONAL = """
def inputs(case, rng):
    here = {"generator": rng, "device": rng.device}
    bias = torch.randn(case.n, **here) if case.name == "main" else None
    return {"x": torch.randn(case.m, case.n, **here), "bias": bias, "scale": 2, "mode": "up"}


def reference(x, bias, scale, mode):
    x = x * scale
    return (x if bias is None else x + bias), x.argmax(-1)
"""


def softmax(values: Values) -> Results:
    return {"out": torch.softmax(values["x"], -1)}


def rmsnorm(values: Values) -> Results:
    """As a kernel does it: float32 inside, rounded once."""
    x, residual, weight, eps = values.values()
    total = (x.float() + residual.float()).bfloat16()
    scale = torch.rsqrt(total.float().square().mean(-1, keepdim=True) + eps)
    return {"x": (total.float() * scale * weight.float()).bfloat16(), "residual": total}


def optional(values: Values) -> Results:
    x = values["x"] * values["scale"]
    return {"out0": x if values["bias"] is None else x + values["bias"], "out1": x.argmax(-1)}


def quantise(values: Values) -> Results:
    """Another right way: a scale of its own, so that no code is the reference's."""
    scale = values["x"].abs().amax(-1, keepdim=True) / 400
    return {"q": (values["x"] / scale).to(torch.float8_e4m3fn), "s": scale}


TASKS: dict[str, tuple[str, str, Callable[[Values], Results]]] = {
    "softmax": (kit.SOFTMAX, "softmax(Tensor x) -> Tensor", softmax),
    "rmsnorm": (kit.RMSNORM, kit.RMSNORM_SIGNATURE, rmsnorm),
    "optional": (OPTIONAL, "f(Tensor x, Tensor? bias, int scale=2, str mode='up') -> (Tensor, Tensor)", optional),
    "quantise": (QUANTISE, "quantise(Tensor x) -> (Tensor q, Tensor s)", quantise),
}


@pytest.mark.parametrize("name", list(TASKS))
def test_right_and_wrong_answers(tmp_path: Path, name: str) -> None:
    reference, signature, kernel = TASKS[name]
    process = kit.served if name in ("rmsnorm", "quantise") else kit.here
    with process(kit.task(tmp_path, reference, signature)) as judge:
        for layout in judge.describe().layouts:
            filled, bank = judge.fill(layout.case, *SEEDS)
            assert filled.error == ""
            given = kit.values_in(bank[0], layout)
            right = kernel(given)
            answer = judge.ask(layout, bank[0], right)
            assert (answer.error, answer.wrong, answer.stale) == ("", "", False)
            assert [(t.dtype, t.columns) for t in answer.budgets] == [(t.dtype, t.columns) for t in draws.tolerances(layout)]
            assert all(t.worst >= t.rms >= 0 for t in answer.budgets)
            for result in right:
                wrong = judge.ask(layout, bank[0], right | {result: torch.zeros_like(right[result])})
                assert wrong.wrong
                assert wrong.budgets
                assert not wrong.stale
            assert judge.ask(layout, bank[1], right).stale
            mixed = draws.mixed(layout, given, kit.values_in(bank[1], layout), torch.Generator().manual_seed(1))
            image = torch.zeros(layout.set_bytes, dtype=torch.uint8)
            draws.write(image, layout, mixed)
            assert judge.ask(layout, image, kernel(mixed)).wrong == ""


@pytest.mark.parametrize("name", list(TASKS))
def test_the_lint_of_honest_tasks(tmp_path: Path, name: str) -> None:
    reference, signature, _ = TASKS[name]
    with kit.here(kit.task(tmp_path, reference, signature)) as judge:
        found: Mutated = judge.asked(Mutate(), Mutated)[0]
    assert found.error == ""
    assert len(found.mutants) >= 8
    assert all(m.killed for m in found.mutants)


def test_what_a_task_looks_like(tmp_path: Path) -> None:
    with kit.here(kit.task(tmp_path, QUANTISE, TASKS["quantise"][1], arguments=(Argument("x", role="weight"),))) as judge:
        found = judge.describe()
        only, _ = judge.asked(Describe(("odd",)), Described)
    main, odd = found.layouts
    assert (main.case, main.axes, main.set_bytes) == ("main", (("m", 8), ("n", 32)), 1024)
    assert [(o.name, o.dtype, o.shape) for o in odd.outputs] == [("q", "float8_e4m3fn", (3, 7)), ("s", "float32", (3, 1))]
    assert (odd.given[0].tensor.role, odd.given[0].tensor.refresh, main.given[0].tensor.refresh) == ("weight", "whole", "element")
    assert found.limits == ((1280.0, 0.0), (105.0, 0.0))
    assert [(t.dtype, t.columns, t.rms, t.worst) for t in found.results[0]] == [("float8_e4m3fn", 32, 0, 0), ("float32", 8, 0, 0)]
    assert found.has_compare
    assert only.layouts == (odd,)


def test_a_bank_holds_the_draws_of_its_seeds(tmp_path: Path) -> None:
    with kit.here(kit.task(tmp_path, kit.RMSNORM, kit.RMSNORM_SIGNATURE)) as judge:
        layout = judge.layout("odd")
        filled, bank = judge.fill("odd", *SEEDS, SEEDS[0])
        _, again = judge.fill("odd", SEEDS[1])
    assert filled.bank.kind == "host"
    assert (filled.bank.draws, filled.bank.stride % ALIGN, filled.bank.size) == (4, 0, 4 * filled.bank.stride)
    assert torch.equal(bank[0], bank[3])
    assert torch.equal(bank[1], again[0])
    assert len({bytes(image.numpy()) for image in bank}) == 3
    used = [(g.tensor.offset, g.tensor.nbytes) for g in layout.tensors]
    assert all(
        int(bank[0][at + size : up].count_nonzero()) == 0
        for (at, size), up in zip(used, [*(a for a, _ in used[1:]), layout.set_bytes], strict=True)
    )


def test_outputs_without_axes_or_elements(tmp_path: Path) -> None:
    text = kit.SOFTMAX.replace("torch.softmax(x, -1)", "x.sum(), x[:0]")
    with kit.here(kit.task(tmp_path, text, "f(Tensor x) -> (Tensor s, Tensor e)")) as judge:
        layout = judge.layout("main")
        _, bank = judge.fill("main", SEEDS[0])
        values = kit.values_in(bank[0], layout)
        right = {"s": values["x"].double().sum().float(), "e": values["x"][:0]}
        answer = judge.ask(layout, bank[0], right)
        wrong = judge.ask(layout, bank[0], right | {"s": right["s"] + 1})
    assert [(o.shape, o.nbytes) for o in layout.outputs] == [((), 4), ((0, 32), 0)]
    assert (answer.error, answer.wrong) == ("", "")
    assert wrong.wrong.startswith("s[]: got ")


def test_a_case_whose_seeds_are_forgotten_is_wrong_and_not_stale(tmp_path: Path) -> None:
    with kit.here(kit.task(tmp_path, kit.SOFTMAX)) as judge:
        layout = judge.layout("main")
        _, bank = judge.fill("main", *SEEDS[:2])
        old = softmax(kit.values_in(bank[0], layout))
        assert judge.ask(layout, bank[1], old).stale
        judge.fill("main", SEEDS[2])
        answer = judge.ask(layout, bank[1], old)
    assert answer.wrong.startswith("out[")
    assert not answer.stale


def test_a_frozen_oracle_says_what_it_said_before(tmp_path: Path) -> None:
    text = kit.SOFTMAX.replace("torch.softmax(x, -1)", "torch.softmax(x.float(), -1)")  # cannot be had in float64
    with kit.here(kit.task(tmp_path, text, oracle="frozen")) as judge:
        layout = judge.layout("main")
        _, bank = judge.fill("main", SEEDS[0])
        right = softmax(kit.values_in(bank[0], layout))
        assert judge.ask(layout, bank[0], right).wrong == ""
        assert judge.ask(layout, bank[0], {"out": right["out"] * 1.001}).wrong.startswith("out[0, ")
    with kit.here(kit.task(tmp_path, text)) as judge:
        layout = judge.layout("main")
        answer = judge.ask(layout, bank[0], right)
    assert answer.error == "reference() was given float64 and returned float32"
    assert answer.where == "reference.py, case main, `out`"


def test_an_excused_answer_shows_how_far_a_right_one_may_be_off(tmp_path: Path) -> None:
    with kit.here(kit.task(tmp_path, QUANTISE, TASKS["quantise"][1])) as judge:
        layout = judge.layout("main")
        _, bank = judge.fill("main", SEEDS[0])
        values = kit.values_in(bank[0], layout)
        own = judge.ask(layout, bank[0], quantise(values))
        wrong = judge.ask(layout, bank[0], quantise(values) | {"s": torch.ones(8, 1)})
    assert own.wrong == ""
    assert 0.1 < own.budgets[1].worst < 0.2  # every scale is 12 % larger; relative to the RMS of all of them
    assert wrong.wrong.startswith("off by ")


# --------------------------------------------------------------------------------------------- the human's errors


@pytest.mark.parametrize(
    ("text", "error", "where"),
    [
        ("def inputs(case, rng:\n", "SyntaxError", "reference.py:4"),
        ("import nothing_of_that_name\n", "ModuleNotFoundError: No module named", "reference.py:4"),
        ("raise SystemExit(3)\n", "SystemExit: 3", "reference.py:4"),
        ("def inputs(case, rng):\n    return {'x': torch.ones(case.k)}\n", "AttributeError", "reference.py:5, case main"),
        ("def inputs(case, rng):\n    return {'x': torch.ones(3)}\n", "reference.py has no reference(...)", "reference.py"),
        ("def inputs(case, rng):\n    return {}\n", "inputs() returned []", "reference.py, case main"),
    ],
)
def test_every_question_is_answered_with_what_is_wrong(tmp_path: Path, text: str, error: str, where: str) -> None:
    questions: list[tuple[Any, Any]] = [
        (Describe(), Described),
        (Fill("main", SEEDS), Filled),
        (Mutate(), Mutated),
        (Ask("main", "host", 9), Answer),
    ]
    with kit.here(kit.task(tmp_path, text)) as judge:
        for question, kind in questions:
            found = judge.asked(question, kind)[0]
            assert found.error.startswith(error)
            assert found.where == where
            assert found.next_step


def test_the_process_goes_on_after_an_error(tmp_path: Path) -> None:
    text = kit.SOFTMAX.replace("return torch", 'if bool((x > 900).any()):\n        raise ValueError("too large")\n    return torch')
    with kit.served(kit.task(tmp_path, text)) as judge:
        layout = judge.layout("main")
        _, bank = judge.fill("main", SEEDS[0])
        right = softmax(kit.values_in(bank[0], layout))
        large = torch.full((256,), 1e3).view(torch.uint8)
        answer = judge.ask(layout, large, right)
        assert (answer.error, answer.where) == ("ValueError: too large", "reference.py:11, case main")
        assert judge.ask(layout, bank[0], right).wrong == ""
        assert "no case `other`" in judge.fill("other", SEEDS[0])[0].error
        assert judge.asked(Ask("main", "host", 4096), Answer)[0].error.startswith("audit memory of 4096 bytes in 0 descriptors")
        gpu = judge.asked(Fill("main", SEEDS, "gpu"), Filled)[0]
        assert (gpu.bank, gpu.error) == (None, "memory of kind `gpu` on cpu")


@pytest.mark.parametrize(
    ("change", "name"), [("'x': torch.randn(case.m, int(torch.randint(5, 99, ())))", "x"), ("'k': torch.rand(()).item()", "k")]
)
def test_draws_that_do_not_lie_alike(tmp_path: Path, change: str, name: str) -> None:
    text = f"def inputs(case, rng):\n    return {{'x': torch.randn(case.m, case.n), 'k': 1.0, {change}}}\n\n\n"
    text += "def reference(x, k):\n    return x * k\n"
    with kit.here(kit.task(tmp_path, text, "f(Tensor x, float k) -> Tensor")) as judge:
        judge.describe()
        filled, _ = judge.fill("main", *SEEDS)
    assert filled.error == f"inputs() gave two draws of one case different shapes, strides, dtypes or scalars: `{name}`"


def test_ceilings_of_a_cpu(tmp_path: Path) -> None:
    with kit.here(kit.task(tmp_path, kit.SOFTMAX)) as judge:
        found = judge.asked(Measure(), Measured)[0]
    assert [name for name, value in found.numbers if value > 0] == ["copy_GBps", "float32_TFLOPs"]


def test_large_cases_are_not_computed_again_for_an_old_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "CHEAP_BYTES", 2047)
    with kit.here(kit.task(tmp_path, kit.SOFTMAX)) as judge:
        layout = judge.layout("main")
        _, bank = judge.fill("main", *SEEDS[:2])
        answer = judge.ask(layout, bank[1], softmax(kit.values_in(bank[0], layout)))
    assert answer.wrong
    assert not answer.stale
