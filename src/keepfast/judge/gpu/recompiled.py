"""Is what bears the name of a Triton kernel Triton's? Its IR is compiled again inside the walls, and has to become the image of the plan.

The IR is the candidate's word and nobody believes it: whatever it says, an image that Triton makes of it is one that Triton makes. Owns
what a run knows of images, and the control: where the start's own kernels do not come out as they were captured, or there are none, this
machine cannot tell, and origins stay what names say. Must not know shares, rules or how anything is timed.
"""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from keepfast.capture import handover
from keepfast.capture.handover import Source
from keepfast.capture.recompile import Job, Report, Result
from keepfast.gpu import cubin
from keepfast.gpu.plan import Kernel
from keepfast.judge import builder, toolchain
from keepfast.judge.builder import Site
from keepfast.judge.endings import Failure
from keepfast.judge.gpu.workers import Planned
from keepfast.lang import arch as archs
from keepfast.lang.base import MIB, Limits, Step
from keepfast.model import Fact, File, Task

LIMITS = Limits(seconds=300.0, memory_bytes=8192 * MIB, scratch_bytes=256 * MIB)
MAX_WHY = 160
TRIES = 3  # Triton does not always make the same of one IR: of warps that specialise one in 377 kernels came out otherwise, and then right
FACT = "origin"


def asked(task: Task) -> bool:
    """Whether a rule of the task turns on what is Triton."""
    return ("triton" in task.languages and "torch" not in task.languages) or "triton" in task.rules.languages


class Launched(Struct, frozen=True):
    """An image that is launched under the name of a Triton kernel, and what it is said to be made of."""

    name: str
    image: bytes
    source: Source | None

    @property
    def digest(self) -> bytes:
        return hashlib.sha256(self.image).digest()


class Found(Struct, frozen=True):
    """`forged`: names of kernels that are not Triton's, and why not. `facts`: what a verdict says of it."""

    forged: dict[str, str]
    facts: tuple[Fact, ...] = ()


def launched(plans: Sequence[Planned], names: Collection[str]) -> tuple[Launched, ...]:
    """Each image that these plans launch under one of the names, once. What `prepare` launches has no part in GPU time."""
    found: dict[tuple[str, bytes], Launched] = {}
    for planned in plans:
        sources = {source.image: source for source in _handed(planned)}
        kernels = (node.work for node in planned.plan.nodes if isinstance(node.work, Kernel))
        for kernel in kernels:
            image = planned.plan.images[kernel.image]
            if kernel.name in names and (kernel.name, image) not in found:
                found[kernel.name, image] = Launched(kernel.name, image, sources.get(hashlib.sha256(image).digest()))
    return tuple(found.values())


def _handed(planned: Planned) -> tuple[Source, ...]:
    try:
        return handover.decode(planned.ir)
    except handover.Unreadable:
        return ()


class Recompiler:
    """What is known of images is remembered as long as it lives."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.known: dict[bytes, str] = {}  # sha256 of an image -> why it is not Triton's, "" when it is
        self.inline: dict[bytes, int] = {}  # instructions of inline PTX in it
        self.unable: str | None = None  # why this machine cannot tell, "" when it can; None: not tried yet

    def judge(self, given: Sequence[Launched], control: Sequence[Launched]) -> Found:
        """`control`: what the start launches, which is the human's."""
        began = time.monotonic()
        if self.unable is None:
            self.unable = self._tried(control)
        if self.unable or not given:
            return Found({}, (Fact(FACT, f"by name: {self.unable}"),) if self.unable else ())
        self._learn(given)
        forged = {one.name: why for one in given if (why := self.known[one.digest])}
        ours = {one.digest for one in given if not self.known[one.digest]}
        text = f"{len(ours)} of {len({one.digest for one in given})} images are what Triton makes of their IR"
        inline = sum(self.inline.get(digest, 0) for digest in ours)
        ptx = f", {inline} instructions of inline PTX among it" if inline else ""
        return Found(forged, (Fact(FACT, f"{text}{ptx}; {time.monotonic() - began:.1f} s"),))

    def _tried(self, control: Sequence[Launched]) -> str:
        """Why this machine cannot tell, ""."""
        if not control:
            return "the start launches no Triton kernel that compiling again could be tried on"
        self._learn(control)
        wrong = next(((one.name, why) for one in control if (why := self.known[one.digest])), None)
        return f"compiling again does not give the start's own `{wrong[0]}`: {wrong[1]}" if wrong else ""

    def _learn(self, given: Sequence[Launched]) -> None:
        left = {one.digest: one for one in given if one.digest not in self.known}
        for _ in range(TRIES):
            made = {digest: one.source for digest, one in left.items() if one.source is not None}
            results = dict(zip(made, self._compiled(tuple(made.values())), strict=True)) if made else {}
            for digest, one in left.items():
                self.known[digest] = _wrong(one.image, results.get(digest))[:MAX_WHY]
                self.inline[digest] = results[digest].inline if digest in results else 0
            left = {digest: one for digest, one in left.items() if self.known[digest] and digest in results and results[digest].image}
            if not left:
                return

    def _compiled(self, sources: tuple[Source, ...]) -> tuple[Result, ...]:
        """One result a source; an error in each where compiling them failed as a whole."""
        job = File("job", msgspec.msgpack.encode(Job(archs.capability(self.site.arch), sources)))
        folder = self.site.walls.folder()
        try:
            said = builder.run(self.site.walls, (_step(),), {"generated": (job,)}, folder / "report", "device")  # as the compile gate
            why = said.detail if isinstance(said, Failure) else ""
            found = Report(why) if why else _report(folder / "report")
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if len(found.results) == len(sources):
            return found.results
        return tuple(Result(error=f"it could not be compiled again: {found.error or 'no answer'}") for _ in sources)


def _step() -> Step:
    argv = toolchain.python_module("keepfast.capture.recompile", "{generated}/job", "{scratch}/report")
    return Step(argv, "report", read=toolchain.python_folders(), env=toolchain.python_environment(), limits=LIMITS)


def _report(path: Path) -> Report:
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=Report)
    except (msgspec.DecodeError, RecursionError):
        return Report("no answer")


def _wrong(image: bytes, result: Result | None) -> str:
    """Why an image is not what Triton makes, "" when it is."""
    if result is None:
        return "no Triton IR of it was handed over"
    if result.error or result.image == image:
        return result.error
    try:
        ours, theirs = cubin.body(result.image), cubin.body(image)
    except ValueError as error:
        return str(error)
    differing = [part for part in {**ours, **theirs} if ours.get(part) != theirs.get(part)]
    said = next((part for part in differing if ".text" in part), next(iter(differing), "")).partition(" ")
    return f"its IR, compiled again, gives another image: {said[2] or said[0]} differs" if differing else ""
