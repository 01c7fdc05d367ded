"""The task lint on the GPU examples, on the CPU: their small cases kill every mutant."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

torch = pytest.importorskip("torch")

from msgspec.structs import replace  # noqa: E402

from keepfast.oracle.lint import Linter  # noqa: E402
from keepfast.oracle.reference import Reference  # noqa: E402
from keepfast.task.load import load  # noqa: E402

EXAMPLES = Path(__file__).parents[2] / "examples" / "gpu"
LARGE = 300_000  # product of the axes of a case that this machine need not draw


def size(axes: tuple[tuple[str, int], ...]) -> int:
    product = 1
    for _, n in axes:
        product *= n
    return product


@pytest.mark.parametrize("name", sorted(p.parent.name for p in EXAMPLES.glob("*/task.toml")))
def test_every_mutant_dies_on_the_small_cases(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "keepfast_reference", ModuleType("keepfast_reference"))
    task = load(EXAMPLES / name)
    sizes = sorted(((case, size(case.axes)) for case in task.cases), key=lambda each: each[1])[:3]
    found = Linter(Reference(replace(task, cases=tuple(c for c, _ in sizes)), "cpu")).run([s for s in sizes if s[1] < LARGE])
    assert found.error == ""
    assert len(found.mutants) >= 8
