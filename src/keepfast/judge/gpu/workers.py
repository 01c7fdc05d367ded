"""Capture workers: a few processes inside the walls that are warm before they hear of a candidate. Each captures one, and is killed.

Owns their start and replacement, the arenas they are given, and the checks on what they hand over: a plan is read only when nothing of
the worker is left, from a private copy. Whatever a worker says is hostile from the moment it has a candidate; before that its failures
are the machine's. Must not know verdicts, timing or the launcher.

A walled process dies with the thread that started it: a pool belongs to the judge's own thread.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import time
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType

import msgspec
from msgspec import Struct

from keepfast import wire
from keepfast.errors import MachineError, TaskError
from keepfast.gpu import messages, plan
from keepfast.gpu.driver import BLOCK
from keepfast.gpu.layout import up
from keepfast.gpu.messages import CAPTURE_ERRORS, CaseWork
from keepfast.gpu.plan import Plan, PlanError, Segment
from keepfast.judge.endings import MAX_DETAIL, Failure, broke_protocol
from keepfast.judge.gpu import peer
from keepfast.judge.gpu.peer import Argv
from keepfast.judge.gpu.worker import Worker, WorkerSpec
from keepfast.model import File, Reason
from keepfast.walls.base import Walls

__all__ = ["Captured", "Planned", "Pool", "Subject", "WorkerSpec"]

READY_S = 120.0  # cold file caches: torch alone is some gigabytes
CASES = (wire.MAX_FDS - 3) // 2  # of one capture: a plan and a sample each, beside record, files and library
COLLISIONS = 8  # workers in a row whose arena was taken
ALL_PLANS = 1 << 30  # bytes of all plans of one capture
TRIES = 1000  # to find a free place for an arena
STEP = 1 << 36  # arenas begin at multiples of 64 GiB: two that lie alike translate alike, docs/decisions/0007
REASONS = {
    "import": Reason.LOAD,
    "compile": Reason.BUILD,
    "raised": Reason.CRASH,
    "result": Reason.WRONG,
    "graph": Reason.GRAPHS,
    "not-a-plan": Reason.NOT_A_PLAN,
    "memory": Reason.LIMITS,
    "fault": Reason.CRASH,
    "nothing": Reason.NOT_A_PLAN,
}
SAID_BY_REASON = ("import", "compile", "graph", "not-a-plan")  # the verdict's own sentence says as much


class Subject(Struct, frozen=True):
    """What is captured. `samples`: the image of one throwaway set of each case; sent where `CaseWork.sample` says its size.
    `prepare`: what one beside the entry is (`messages.Capture`)."""

    language: str
    entry_path: str
    entry_symbol: str
    files: tuple[File, ...]
    cases: tuple[CaseWork, ...]
    samples: tuple[bytes, ...]
    library: Path | None = None
    path: tuple[str, ...] = ()
    prepare: str = ""


class Planned(Struct, frozen=True):
    """One case's plan: decoded, and as it came. Everything in it lies in [arena, arena + arena_bytes). `ir`: what came with it, unread."""

    plan: Plan
    data: bytes
    arena: int
    arena_bytes: int
    ir: bytes = b""


class Captured(Struct, frozen=True, weakref=True):
    """A capture. As long as one is remembered, no other gets an arena that overlaps its own: any two fit in one launcher."""

    plans: dict[str, Planned]  # by case
    host_us: dict[str, float]  # of one call of the host code, when warm, by case
    arena: int
    arena_bytes: int
    autotuned: tuple[tuple[str, tuple[str, ...]], ...]
    versions: tuple[tuple[str, str], ...]
    seconds: float

    def arm(self, case: str) -> Planned:
        return self.plans[case]


class Pool:
    """Warm workers. Close it, or leave its `with` block, and none is left. `collisions`: arenas that were taken."""

    def __init__(self, walls: Walls, spec: WorkerSpec, argv: Argv | None = None) -> None:
        self.walls, self.spec, self.collisions = walls, spec, 0
        self._argv = argv or peer.command("keepfast.capture.worker")
        self._warm: list[Worker] = []
        self._held = False
        self._given: list[weakref.ref[Captured]] = []
        self._fill()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """May be called again."""
        while self._warm:
            self._warm.pop().close()

    def settle(self, timeout_s: float = READY_S) -> bool:
        """Wait until no worker is still importing, so that none does while something is timed. Whether that is so."""
        end = time.monotonic() + timeout_s
        return all(worker.heard(max(0.0, end - time.monotonic())) for worker in self._warm)

    @contextmanager
    def held(self) -> Iterator[None]:
        """No replacement is started before the block is left, unless none is warm: so that none imports while something is timed."""
        before, self._held = self._held, True
        try:
            yield
        finally:
            self._held = before
            if not before:
                self._fill()

    def capture(self, subject: Subject, timeout_s: float) -> Captured | Failure:
        """Let a worker capture it. What goes wrong before it has the candidate is a MachineError."""
        with ExitStack() as stack:
            stack.callback(self._replace)  # last of all, however this ends
            worker = stack.enter_context(self._take())
            began = time.monotonic()
            plans = self._handed(worker, subject, stack)
            answer = worker.answer(messages.Captured, timeout_s)
            worker.kill()  # from here on nobody can write what is read
            if isinstance(answer, Failure):
                return answer
            if failure := worker.talked() or _refused(answer, subject):
                return failure
            try:
                found = _plans(answer, subject, plans, (Segment(worker.arena, self.spec.arena_bytes), self.spec.max_bytes))
            except PlanError as error:
                return Failure(Reason.NOT_A_PLAN, str(error)[:MAX_DETAIL])
            return _hidden(found, subject) or _uneven(found) or self._remembered(found, answer, worker, time.monotonic() - began)

    def _remembered(self, found: dict[str, Planned], answer: messages.Captured, worker: Worker, seconds: float) -> Captured:
        host_us = {said.case: said.host_us for said in answer.cases}
        made = Captured(found, host_us, worker.arena, self.spec.arena_bytes, answer.autotuned, answer.versions, seconds)
        self._given.append(weakref.ref(made))
        return made

    # ---- warm workers --------------------------------------------------------------------------------------------------

    def _replace(self) -> None:
        if not self._held:
            self._fill()

    def _fill(self) -> None:
        while len(self._warm) < self.spec.size:
            self._warm.append(Worker(self.walls, self.spec, self._base(), self._argv))

    def _base(self) -> int:
        """A random place for an arena, away from those of captures that are remembered and of the other workers."""
        given = [captured for ref in self._given if (captured := ref()) is not None]
        self._given = [weakref.ref(captured) for captured in given]
        used = [*(captured.arena for captured in given), *(worker.arena for worker in self._warm)]
        for _ in range(TRIES):
            base = STEP * (64 + secrets.randbelow(448))
            if all(abs(base - other) >= self.spec.arena_bytes for other in used):
                break
        return base

    def _take(self) -> Worker:
        """The warmest worker, ready. Those whose arena was taken are replaced."""
        for _ in range(COLLISIONS):
            if not (self._held and self._warm):
                self._fill()
            worker = next((w for w in self._warm if w.heard(0.0)), self._warm[0])
            self._warm.remove(worker)
            with ExitStack() as stack:
                stack.enter_context(worker)
                ready = worker.ready(READY_S)
                if ready.ok:
                    stack.pop_all()
                    return worker
            if ready.detail != "arena":
                step = "keepfast doctor   shows what a capture needs: a GPU, torch and triton that match, CUPTI"
                raise MachineError(f"a capture worker did not get ready: {ready.detail}", next_step=step)
            self.collisions += 1
        what = f"{COLLISIONS} capture workers in a row found their addresses taken"
        raise MachineError(what, next_step="keepfast doctor")

    def _handed(self, worker: Worker, subject: Subject, stack: ExitStack) -> list[int]:
        """Send the candidate; the descriptors of the plans to come."""
        if len(subject.cases) > CASES:
            raise TaskError(f"{len(subject.cases)} cases; at most {CASES} can be judged", where="task.toml", next_step="leave some out")
        files = msgspec.msgpack.encode([(file.path, file.data) for file in subject.files])
        memory = [_kept(stack, peer.sealed("files", files))]
        if subject.library is not None:
            memory.append(_kept(stack, peer.sealed("library", Path(subject.library).read_bytes())))
        plans = [_kept(stack, _empty("plan", plan.MAX_BYTES)) for _ in subject.cases]
        samples = [
            _kept(stack, peer.sealed("sample", image[: work.sample]))
            for work, image in zip(subject.cases, subject.samples, strict=True)
            if work.sample
        ]
        worker.tell(_message(subject, len(files)), (*memory, *plans, *samples))
        return plans


def _kept(stack: ExitStack, fd: int) -> int:
    stack.callback(os.close, fd)
    return fd


def _message(subject: Subject, files_bytes: int) -> messages.Capture:
    return messages.Capture(
        language=subject.language,
        entry_path=subject.entry_path,
        entry_symbol=subject.entry_symbol,
        library=subject.library is not None,
        files_bytes=files_bytes,
        cases=subject.cases,
        path=subject.path,
        prepare=subject.prepare,
    )


def _empty(name: str, size: int) -> int:
    """Memory of a fixed size that takes room only where it is written. Read by copying: what is missing then is no fault of ours."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return fd


# --------------------------------------------------------------------------------------------- what a worker handed over


def _refused(answer: messages.Captured, subject: Subject) -> Failure | None:
    """The failure that an answer tells of, or that it is."""
    cases = tuple(work.layout.case for work in subject.cases)
    if answer.error:
        if answer.error not in CAPTURE_ERRORS:
            return broke_protocol("answered with an error that does not exist", cheat=True)
        return Failure(REASONS[answer.error], _detail(answer, cases))
    if tuple(said.case for said in answer.cases) != cases:
        return broke_protocol("answered for other cases than it was asked about", cheat=True)
    if any(said.host_us < 0 for said in answer.cases):
        return broke_protocol("said that its host code took less than no time", cheat=True)
    return None


def _detail(answer: messages.Captured, cases: tuple[str, ...]) -> str:
    words = " ".join(answer.detail.split())
    general = CAPTURE_ERRORS[answer.error]
    text = words if words and answer.error in SAID_BY_REASON else f"{general}: {words}" if words else general
    return (f"case {answer.case}: {text}" if answer.case in cases else text)[:MAX_DETAIL]


def _plans(answer: messages.Captured, subject: Subject, fds: list[int], room: tuple[Segment, int]) -> dict[str, Planned]:
    """The plans of all cases, checked: in the arena, and of no more memory than the worker had. PlanError that names the case."""
    arena, most = room
    if sum(said.plan_bytes for said in answer.cases) > ALL_PLANS:
        raise PlanError(f"plans of more than {ALL_PLANS >> 20} MiB together")
    found: dict[str, Planned] = {}
    for said, work, fd in zip(answer.cases, subject.cases, fds, strict=True):
        try:
            data, ir = _copied(fd, said)
            decoded = plan.decode(data)
            _check(decoded, work, arena)
            if (size := sum(s.size for s in decoded.segments)) > most:
                raise PlanError(f"names {size >> 20} MiB of memory; a capture has {most >> 20}")
        except PlanError as error:
            raise PlanError(f"case {said.case}: {error}") from None
        found[said.case] = Planned(decoded, data, arena.address, arena.size, ir)
    return found


def _hidden(found: dict[str, Planned], subject: Subject) -> Failure | None:
    """Work outside the clock where the task has none: whatever the worker was told, its plan says what it says."""
    for work in subject.cases:
        weights = any(given.tensor is not None and given.tensor.role == "weight" for given in work.layout.given)
        if found[work.layout.case].plan.prepare and not (weights and subject.prepare == "weights"):
            asked = "has no weights" if subject.prepare == "weights" else "asks for it inside" if subject.prepare else "forbids it"
            what = f"case {work.layout.case}: its plan has work of `prepare` outside the clock, and the task {asked}"
            return Failure(Reason.RULE, what, cheat=True)
    return None


def _uneven(found: dict[str, Planned]) -> Failure | None:
    """All calls of a case are of the same shapes: one that launches something else would do another call's work, or hide a kernel."""
    for case, planned in found.items():
        if (call := planned.plan.uneven()) is not None:
            return Failure(Reason.UNSTABLE_PLAN, f"case {case}: call {call} launches other kernels, grids or sizes than call 0")
    return None


def differs(first: Captured, again: Captured) -> Failure | None:
    """Two captures of one candidate must launch the same: images, kernels, grids, sizes, scalars."""
    for case, one in first.plans.items():
        if one.plan.signature(exact_scalars=True) != again.plans[case].plan.signature(exact_scalars=True):
            return Failure(Reason.UNSTABLE_PLAN, f"case {case}: two captures launch different kernels, grids, sizes or scalars")
    return None


def _copied(fd: int, said: messages.CapturedCase) -> tuple[bytes, bytes]:
    """The plan, and the IR behind it."""
    size = said.plan_bytes
    if not 0 < size <= plan.MAX_BYTES:
        raise PlanError(f"a plan of {size} bytes; one has 1 to {plan.MAX_BYTES}")
    if not 0 <= said.ir_bytes <= plan.MAX_BYTES - size:
        raise PlanError(f"{said.ir_bytes} bytes of IR behind a plan of {size}")
    data = wire.read(fd, size + said.ir_bytes)
    return data[:size], data[size:]


def _check(found: Plan, work: CaseWork, arena: Segment) -> None:
    """PlanError unless it is the plan that was asked for: this case, these calls, sets and results as the layout says, all in the arena."""
    layout = work.layout
    if (found.case, found.calls) != (layout.case, work.calls):
        raise PlanError(f"it is of case {found.case[:40]!r} with {found.calls} calls, not of {work.calls}")
    if any(s.address < arena.address or s.end > arena.end for s in found.segments):
        raise PlanError("memory outside the arena")
    sets = Segment(found.sets, up(max(work.calls * layout.set_bytes, 1), BLOCK))
    if sets.address % BLOCK or not plan.inside(found.segments, sets.address, sets.size):
        raise PlanError(f"its sets are not one block of {sets.size} bytes")
    sizes = tuple(output.nbytes for output in layout.outputs)
    if any(tuple(r.size for r in results) != sizes for results in found.results):
        raise PlanError("its results have not the sizes of the outputs")
    used = [*((b.address, b.end) for b in found.blocks), *((r.address, r.end) for call in found.results for r in call if r.size)]
    if any(first < sets.end and sets.address < end for first, end in used):
        raise PlanError("a result or a restored block lies in the sets")
