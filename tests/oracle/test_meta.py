"""What host code may read: drawn by meta(), the same in all draws of a bank, given to inputs() and to reference()."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

torch = pytest.importorskip("torch")

from keepfast.errors import TaskError  # noqa: E402
from keepfast.gpu.messages import Fill, Filled, Mutate, Mutated  # noqa: E402
from keepfast.model import Argument, Task  # noqa: E402
from keepfast.oracle import draws  # noqa: E402
from keepfast.oracle.reference import Reference  # noqa: E402
from tests.oracle import kit  # noqa: E402

SEEDS = ((1, 2, 3, 4), (5, 6, 7, 8), (9, 10, 11, 12))
LENGTHS = """
def meta(case, rng):
    return {"lengths": torch.randint(1, case.n + 1, (case.m,), generator=rng, dtype=torch.int32)}


def inputs(case, rng, lengths):
    assert lengths.device.type == "cpu" and len(lengths.tolist()) == case.m
    return {"x": torch.randn(case.m, case.n, generator=rng, device=rng.device)}


def reference(x, lengths):
    beyond = torch.arange(x.shape[-1], device=x.device) >= lengths[:, None]
    return x.masked_fill(beyond, 0).sum(-1)
"""


@pytest.fixture(autouse=True)
def _untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "keepfast_reference", ModuleType("keepfast_reference"))


def task(folder: Path, reference: str = LENGTHS) -> Task:
    return kit.task(folder, reference, "f(Tensor x, Tensor lengths) -> Tensor", arguments=(Argument("lengths", role="meta"),))


def test_all_draws_have_the_lengths_of_one_seed(tmp_path: Path) -> None:
    made = task(tmp_path)
    with kit.here(made) as judge:
        layout = judge.layout("main")
        found = [lengths(judge, meta) for meta in ((7, 7, 7, 7), (7, 7, 7, 7), (8, 8, 8, 8))]
        filled, images = judge.fill("main", *SEEDS)
    assert layout.given[1].tensor is not None
    assert (layout.given[1].tensor.role, layout.given[1].tensor.refresh) == ("meta", "whole")
    for one in found:
        assert len({tuple(row) for row in one}) == 1
    assert found[0] == found[1] != found[2]
    assert filled.bank is not None
    free = {tuple(draws.read(image, layout)["lengths"].tolist()) for image in images}
    assert len(free) == 3, "without a seed of their own they are drawn with the rest"


def lengths(judge: kit.Judge, meta: tuple[int, ...]) -> list[list[int]]:
    layout = judge.layout("main")
    filled, fds = judge.asked(Fill("main", SEEDS, "host", meta), Filled)
    with open(fds[0], "rb") as file:
        data = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)
    images = data[: filled.bank.draws * filled.bank.stride].reshape(filled.bank.draws, filled.bank.stride)
    read = [draws.read(image, layout) for image in images]
    assert len({values["x"].sum().item() for values in read}) == 3, "everything else is new in each"
    return [values["lengths"].tolist() for values in read]


def test_a_right_and_a_wrong_answer(tmp_path: Path) -> None:
    made = task(tmp_path)
    with kit.here(made) as judge:
        layout = judge.layout("main")
        _, images = judge.fill("main", *SEEDS)
        values = draws.read(images[1], layout)
        right = Reference(made, "cpu").working(values)
        assert judge.ask(layout, images[1], right).wrong == ""
        assert judge.ask(layout, images[1], {"out": values["x"].sum(-1)}).wrong != ""


def test_such_a_task_is_linted_as_others_are(tmp_path: Path) -> None:
    with kit.here(task(tmp_path)) as judge:
        found, _ = judge.asked(Mutate(), Mutated)
    assert found.error == ""
    assert found.mutants


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("def meta(", "def other(", "reference.py has no meta(case, rng)"),
        ('{"lengths": torch.randint', '{"length": torch.randint', "meta() returned ['length']"),
        ('return {"lengths": torch.randint(', "return (torch.randint(", "meta() returned"),
        ("(case.m,), generator", "(case.m, 2), generator", "is no plain list of values that the host can read"),
        ('return {"x": ', 'return {"lengths": lengths, "x": ', "inputs() returned ['lengths'], which meta() draws"),
    ],
)
def test_what_it_may_not_be(tmp_path: Path, old: str, new: str, what: str) -> None:
    text = LENGTHS.replace(old, new)
    text = text.replace("dtype=torch.int32)}", "dtype=torch.int32))") if "return (torch" in new else text
    made = task(tmp_path, text)
    with pytest.raises(TaskError) as error:
        Reference(made, "cpu").inputs(made.cases[0], (1,))
    assert what in error.value.what
    assert error.value.next_step
