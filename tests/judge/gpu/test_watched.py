"""Time that was there only while it was watched is taken off the candidate's own kernels, and off nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.gpu.messages import KernelFacts, Profiled
from keepfast.judge.gpu import watched
from keepfast.judge.gpu.watched import Watched

ORIGINS = {"mine": "triton", "mine_too": "cute", "gemm": "cublas", "who": "unknown"}


def kernels(**shares: float) -> tuple[KernelFacts, ...]:
    return tuple(KernelFacts(name, 1, 32, 0, 0, 128, share) for name, share in shares.items())


def held(call_us: float, room_us: float, **shares: float) -> dict[str, float]:
    return {k.name: k.share for k in watched.held(kernels(**shares), Watched(call_us, room_us), ORIGINS.__getitem__)}


def test_a_leaf_that_waits_is_a_leaf() -> None:
    assert held(120.0, 22.0, mine=100 / 120, gemm=20 / 120) == {"mine": pytest.approx(2 / 22), "gemm": pytest.approx(20 / 22)}


def test_all_own_kernels_lose_in_proportion_and_what_nobody_knows_loses_nothing() -> None:
    found = held(100.0, 60.0, mine=0.6, mine_too=0.2, who=0.2)
    assert found == {"mine": pytest.approx(0.3 / 0.6), "mine_too": pytest.approx(0.1 / 0.6), "who": pytest.approx(0.2 / 0.6)}


@pytest.mark.parametrize(("call_us", "room_us"), [(100.0, 100.0), (100.0, 180.0), (0.0, 0.0), (0.0, 5.0)])
def test_where_there_is_room_nothing_changes(call_us: float, room_us: float) -> None:
    assert held(call_us, room_us, mine=0.7, gemm=0.3) == {"mine": 0.7, "gemm": 0.3}


def test_who_has_only_kernels_of_its_own_loses_nothing() -> None:
    assert held(100.0, 40.0, mine=1.0) == {"mine": pytest.approx(1.0)}
    assert held(100.0, 0.0, mine=1.0) == {"mine": 1.0}


def test_who_has_none_of_its_own_loses_nothing() -> None:
    assert held(100.0, 40.0, gemm=0.9, who=0.1) == {"gemm": 0.9, "who": 0.1}


@given(st.floats(0.01, 0.99), st.floats(0.0, 0.98), st.floats(1.0, 1e5))
def test_shares_stay_a_whole_and_libraries_never_get_less(own: float, missing: float, call_us: float) -> None:
    found = held(call_us, call_us * (1 - missing), mine=own, gemm=1 - own)
    assert sum(found.values()) == pytest.approx(1.0)
    assert found["gemm"] >= (1 - own) * (1 - 1e-9)
    assert found["mine"] >= 0


def test_what_is_said_of_it() -> None:
    assert watched.said("main", watched.of(Profiled((), 100.0, 96.0))) == ""
    assert watched.said("main", watched.of(Profiled((), 100.0, 24.0))) == (
        "case main: its kernels take 100.0 us a call while each is watched, and there is room for 24.0 us in the chain that is timed"
    )
