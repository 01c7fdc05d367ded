"""Is a subject in the language asked for, and within the task's rules? By the names and shares of its kernels first; late, of the capture
that decides, by making again what bears the name of a Triton kernel.

Owns what was found of the origins of each subject. Must not know how anything was checked or timed.
"""

from __future__ import annotations

from msgspec.structs import replace

from keepfast.gpu.messages import KernelFacts
from keepfast.judge.endings import MAX_DETAIL, Failure
from keepfast.judge.gpu import provenance, recompiled, rules, watched
from keepfast.judge.gpu.arms import Arms, Artifact
from keepfast.judge.gpu.check import Correct
from keepfast.judge.gpu.workers import Captured
from keepfast.model import Fact, Task

Kernels = tuple[KernelFacts, ...]


class Allowed:
    """`origins`: of tree or baseline, what was found of its kernels in this evaluation."""

    def __init__(self, task: Task, arms: Arms, recompiler: recompiled.Recompiler) -> None:
        self.task, self.arms, self.recompiler = task, arms, recompiler
        self.origins: dict[str, tuple[Fact, ...]] = {}

    def shares(self, artifact: Artifact, found: Correct) -> Kernels:
        """Every kernel with its share of GPU time over the timed cases, equally weighted as the task says."""
        origin = provenance.Authored(artifact.tree).origin
        weights = dict(zip((c.name for c in self.task.timed), self.task.weights(), strict=True))
        shares: dict[str, float] = {}
        facts: dict[str, KernelFacts] = {}
        for right in found.cases:
            for kernel in watched.held(right.kernels, right.watched, origin):
                facts[kernel.name] = kernel
                shares[kernel.name] = shares.get(kernel.name, 0.0) + weights.get(right.case, 0.0) * kernel.share
        return tuple(replace(k, share=shares[name]) for name, k in facts.items())

    def ruled(
        self, artifact: Artifact, captured: Captured, kernels: Kernels, forged: frozenset[str] = frozenset()
    ) -> Failure | tuple[Fact, ...]:
        """`forged`: names of kernels that are not what they say."""
        judged = provenance.judge_language(self.task.languages, artifact.tree, kernels, forged)
        if isinstance(judged, Failure):
            return judged
        subject = rules.Subject(artifact.tree, tuple(one.plan for one in captured.plans.values()), self.arms.dtypes, forged)
        ruled = rules.judge(self.task, subject, kernels)
        return ruled if isinstance(ruled, Failure) else (*judged, *ruled)

    def named(self, artifact: Artifact, captured: Captured, kernels: Kernels, start: Artifact | None) -> Failure | None:
        """Is what bears the name of a Triton kernel Triton's? `start`: whose own kernels show whether that can be told here at all."""
        if not recompiled.asked(self.task):
            return None
        control = self._triton(start, start.takes[0]) if start is not None and 0 in start.takes else ()
        found = self.recompiler.judge(self._triton(artifact, captured), control)
        self.origins[artifact.arm.key] = found.facts
        ruled = self.ruled(artifact, captured, kernels, frozenset(found.forged))
        if not isinstance(ruled, Failure):
            return None
        why = next((f"; `{provenance.short(name)}`: {text}" for name, text in found.forged.items()), "")
        return replace(ruled, detail=f"{ruled.detail}{why}"[:MAX_DETAIL])

    def _triton(self, artifact: Artifact, captured: Captured) -> tuple[recompiled.Launched, ...]:
        """What counts as the artifact's own Triton, by name. Cases that are not timed have no part in GPU time."""
        own = provenance.Authored(artifact.tree)
        plans = [captured.plans[case.name] for case in self.task.timed]
        names = {kernel.name for one in plans for kernel in one.plan.kernels()}
        return recompiled.launched(plans, {name for name in names if own.origin(name) == "triton"})
