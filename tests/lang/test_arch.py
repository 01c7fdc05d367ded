from __future__ import annotations

import pytest

from keepfast.errors import MachineError, UsageError
from keepfast.lang import arch


@pytest.mark.parametrize(
    ("name", "number", "specific"),
    [
        ("sm_90", 90, "90a"),
        ("sm_90a", 90, "90a"),
        ("90", 90, "90a"),
        ("sm_89", 89, "89"),
        ("sm_100", 100, "100a"),
        ("sm_120f", 120, "120a"),
    ],
)
def test_names(name: str, number: int, specific: str) -> None:
    assert arch.capability(name) == number
    assert arch.specific(name) == specific


@pytest.mark.parametrize("name", ["", "hopper", "sm_9", "sm_90 -v", "compute_90", "sm_٩٠"])
def test_what_is_no_architecture(name: str) -> None:
    with pytest.raises(UsageError, match="sm_90"):
        arch.capability(name)


def test_a_language_that_is_too_new_for_the_gpu() -> None:
    arch.needs("Triton", "sm_80", 80)
    arch.needs("Triton", "", 80)
    with pytest.raises(MachineError, match="Triton makes no code for sm_70: the first GPU that it knows is sm_80"):
        arch.needs("Triton", "sm_70", 80)
