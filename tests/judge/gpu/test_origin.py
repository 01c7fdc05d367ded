"""When it is asked whether named kernels are Triton's, and what an answer means for a verdict. The answers are scripted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from keepfast.gpu.messages import KernelFacts
from keepfast.judge.endings import Failure
from keepfast.judge.gpu import provenance
from keepfast.judge.gpu.recompiled import Found, Launched
from keepfast.model import Fact, Kind, Phase, Reason, Rules, Verdict

from .stand import Stand, climbed, gpu_task, rungs
from .test_gpu_time import ALL, FAST, TESTED, phases
from .test_provenance import TRITON, kernels

Stands = Callable[..., Stand]
LIE = "no Triton IR of it was handed over"


class Scripted:
    """Stands for the recompiler: `forged` by name. `asked`: names and images of subject and control, by call."""

    def __init__(self, forged: dict[str, str], fact: str = "1 of 1 images") -> None:
        self.found = Found(forged, (Fact("origin", fact),))
        self.asked: list[tuple[list[tuple[str, bytes]], ...]] = []

    def judge(self, *both: Sequence[Launched]) -> Found:
        self.asked.append(tuple([(one.name, one.image) for one in given] for given in both))
        return self.found


def scripted(stand: Stand, *forged: str) -> Scripted:
    made = Scripted(dict.fromkeys(forged, LIE))
    stand.judge.allowed.recompiler = made  # type: ignore[assignment]
    return made


def facts(verdict: Verdict) -> dict[str, str]:
    return {fact.name: fact.value for fact in verdict.rungs[-1].facts}


def test_a_kernel_that_only_bears_the_name_is_refused_before_confirm(stand: Stand) -> None:
    asked = scripted(stand.begun(), "rms_k").asked
    found = stand.evaluate(**FAST)
    assert (found.kind, found.reason) == (Kind.REJECT, Reason.LANGUAGE)
    assert found.detail == (
        "asked for triton, and 100 % of GPU time is in kernels that have the name of a Triton kernel, and that Triton did not compile "
        f"(`rms_k`); `rms_k`: {LIE}"
    )
    assert (rungs(found), phases(found)) == (climbed(*ALL, last=False), TESTED)
    assert asked == [([("rms_k", b"fast () rms_k")], [("rms_k", b"start () rms_k")])]


def test_one_that_is_tritons_is_kept_and_the_verdict_says_so(stand: Stand) -> None:
    asked = scripted(stand.begun()).asked
    found = stand.evaluate(**FAST)
    assert found.kept, found.detail
    assert facts(found) == {"origin": "1 of 1 images"}
    assert len(asked) == 1


def test_a_screen_out_does_not_pay_for_it(stand: Stand) -> None:
    asked = scripted(stand.begun()).asked
    found = stand.evaluate(code="other", ns=11_000.0)
    assert (found.reason, phases(found), asked, facts(found)) == (Reason.SLOWER, [Phase.SCREEN], [], {})


def test_a_task_that_takes_any_pytorch_does_not_ask(stands: Stands, tmp_path: Path) -> None:
    stand = stands(gpu_task(tmp_path, languages=("torch", "triton"))).begun()
    asked = scripted(stand, "rms_k").asked
    assert stand.evaluate(**FAST).kept
    assert asked == []


def test_the_rule_on_languages_counts_forged_ones_too(stands: Stands, tmp_path: Path) -> None:
    stand = stands(gpu_task(tmp_path, languages=("torch",), rules=Rules(languages=("triton",)))).begun()
    scripted(stand, "rms_k")
    found = stand.evaluate(**FAST)
    assert found.reason is Reason.RULE
    assert found.detail.startswith("100 % of GPU time is in kernels that have the name of a Triton kernel")


def test_where_names_have_to_do_a_verdict_says_that(stand: Stand) -> None:
    found = stand.begun().evaluate(**FAST)  # the stand-in of the capture hands no IR over, not even of the start
    assert found.kept, found.detail
    assert facts(found) == {"origin": f"by name: compiling again does not give the start's own `rms_k`: {LIE}"}


@pytest.mark.parametrize(("forged", "share"), [(("rms_k",), 0.0), (("other",), 1.0), ((), 1.0)])
def test_only_what_is_forged_loses_its_share(forged: tuple[str, ...], share: float) -> None:
    found = provenance.shares(kernels(("rms_k", 1.0)), TRITON, forged)
    assert sum(s.time for s in found if s.origin == "triton") == share


def test_a_half_that_is_tritons_is_enough() -> None:
    tree = provenance.Authored(TRITON, ("add",))
    assert tree.origin("add") == "unknown"  # nothing of that name is the tree's: there is nothing to forge
    both: tuple[KernelFacts, ...] = kernels(("rms_k", 0.6), ("add", 0.4))
    assert not isinstance(provenance.judge_language(("triton",), TRITON, both, ("add",)), Failure)
    assert isinstance(provenance.judge_language(("triton",), TRITON, both, ("rms_k",)), Failure)
