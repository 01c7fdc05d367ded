"""The rules of a task, held against what a capture launches: whose kernels, what outlives a call, how tensor cores add up.

Must not know how kernels were timed or checked. Kernel images are a candidate's: read as data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from keepfast import dtypes
from keepfast.gpu import cubin
from keepfast.gpu.messages import KernelFacts
from keepfast.gpu.plan import Plan
from keepfast.judge.endings import MAX_DETAIL, Failure
from keepfast.judge.gpu import provenance
from keepfast.judge.gpu.provenance import Tree, percent
from keepfast.judge.rules import prepared
from keepfast.model import Fact, Reason, Rules, Task

WIDE_SUMS = ("fp64", "fp32", "tf32")  # floors under which a sum in float16 is too coarse


class Subject(Struct, frozen=True):
    """What is judged: its files, the plans of its cases, and the element type of every tensor. `forged`: names of kernels that lie."""

    tree: Tree
    plans: tuple[Plan, ...]
    dtypes: Mapping[str, str]
    forged: frozenset[str] = frozenset()


def judge(task: Task, subject: Subject, kernels: Sequence[KernelFacts]) -> Failure | tuple[Fact, ...]:
    """The first rule that is broken, or what was found."""
    libraries = provenance.judge_rules(task.rules, kernels, subject.tree)
    if isinstance(libraries, Failure):
        return libraries
    broken = (
        _languages(task.rules, subject, kernels)
        or prepared(task, subject.tree.files)
        or _stateful(task.rules, subject.plans)
        or _coarse(task.rules, subject)
    )
    return broken or libraries


def _languages(rules: Rules, subject: Subject, kernels: Sequence[KernelFacts]) -> Failure | None:
    """Kernels of other languages, and those that nobody knows. What libraries may do is `library_kernels`."""
    if not rules.languages:
        return None
    allowed = {provenance.OWN[name] for name in rules.languages if name in provenance.OWN}
    found = provenance.shares(kernels, subject.tree, subject.forged)
    others = [s for s in found if s.origin not in allowed and s.origin not in provenance.LIBRARIES]
    if sum(s.time for s in others) <= provenance.FORBIDDEN:
        return None
    asked = " or ".join(provenance.WORDS[origin] for origin in sorted(allowed))
    said = "; ".join(f"{percent(s.time)} of GPU time is in {provenance.WORDS[s.origin]}: {s.names()}" for s in others)
    return Failure(Reason.RULE, f"{said}; the task says that kernels are written in {asked}"[:MAX_DETAIL])


def _stateful(rules: Rules, plans: Sequence[Plan]) -> Failure | None:
    """Memory that lived on when the capture ended, and `__device__` variables of a module."""
    if not rules.no_state:
        return None
    blocks = max((sum(len(block.data) for block in plan.blocks) for plan in plans), default=0)
    if blocks:
        what = f"keeps {blocks} bytes of device memory from call to call; the task says `no_state`: no workspace, table or packed weight"
        return Failure(Reason.RULE, what)
    for image, names in _launched(plans):
        if said := _kept(image):
            what = f"the module of {', '.join(sorted(names)[:2])} has {said}; the task says `no_state`: use `__constant__`, or arguments"
            return Failure(Reason.RULE, what[:MAX_DETAIL])
    return None


def _kept(image: bytes) -> str:
    """What stays in the module of an image, "" when nothing does."""
    try:
        kept = cubin.kept_bytes(image)
    except ValueError:
        return "an image that cannot be looked into"
    return f"{kept} bytes of `__device__` variables" if kept else ""


def _coarse(rules: Rules, subject: Subject) -> Failure | None:
    """Sums in float16 and products of 8-bit floats on the tensor cores, where the floor is above them."""
    if not rules.precision_floor:
        return None
    known = [dtypes.by_name(name) for name in subject.dtypes.values()]
    tiny = any(dtype.is_float and dtype.bits <= 8 for dtype in known)  # then products of 8-bit floats are exact
    for image, names in _launched(subject.plans):
        for said in _instructions(image, names):
            sums = said.endswith("float16") and rules.precision_floor in WIDE_SUMS
            if sums or ("8-bit" in said and not tiny):
                where = ", ".join(f"`{provenance.short(name)}`" for name in sorted(names)[:2])
                what = f'{where} has {said}; the task says `precision_floor = "{rules.precision_floor}"`'
                return Failure(Reason.RULE, what[:MAX_DETAIL])
    return None


def _instructions(image: bytes, names: set[str]) -> tuple[str, ...]:
    try:
        return cubin.low_sums(image, names)
    except ValueError:
        return ("an image that cannot be looked into: perhaps sums in float16",)


def _launched(plans: Sequence[Plan]) -> Iterator[tuple[bytes, set[str]]]:
    """Every image with the kernels of it that are launched, each once."""
    found: dict[bytes, set[str]] = {}
    for plan in plans:
        for kernel in plan.kernels():
            found.setdefault(plan.images[kernel.image], set()).add(kernel.name)
    yield from found.items()
