"""The judge's end of a launcher: opens cases, gives orders, and says whose fault it is when one is not carried out.

Owns the watchdog, the wording of faults, new starts when an address is taken, and the spare launcher that hides the start-up. Arm 0 is
the subject: what it does wrong is a `Failure`. Arm 1 passed before: what happens while it runs alone is the machine's. Must not know
what results mean.
"""

from __future__ import annotations

import os
import secrets
import signal
import stat
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import pairwise
from types import TracebackType
from typing import Protocol, TypeVar

from msgspec import Struct

from keepfast import settings, wire
from keepfast.errors import MachineError, TaskError
from keepfast.gpu import layout as layouts
from keepfast.gpu import messages
from keepfast.gpu.layout import Layout
from keepfast.gpu.messages import Bank, Tolerance
from keepfast.judge.endings import MAX_DETAIL, Failure
from keepfast.judge.gpu import peer
from keepfast.judge.gpu.peer import Argv, Peer, Silence
from keepfast.model import Reason

OPEN_S = 60.0
RUN_S = 60.0
TIME_S = 180.0
SMALL_S = 30.0  # for what launches nothing of a candidate's
STARTS = 5  # of a launcher for one case, when addresses are taken
PACKAGES = ("keepfast", "msgspec", "numpy", "cuda")
# By these a process ends when the driver trips over what it was given; an arm that ran alone has most likely given it.
FAULTS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT)

SUBJECT = 0
Contents = tuple[Bank, int]  # what it is, and its descriptor, which stays the caller's
T = TypeVar("T")
R = TypeVar("R", messages.Ran, messages.Audited, messages.Timed, messages.Soloed, messages.Profiled, messages.Wound, messages.Benched)


class PlanOfArm(Protocol):
    """A captured plan, as `workers.Planned` is one."""

    @property
    def data(self) -> bytes: ...

    @property
    def arena(self) -> int: ...

    @property
    def arena_bytes(self) -> int: ...


class Opened(Struct, frozen=True):
    """A case that is open. `audit_fd`: the audit memory, of kind `audit`; the launcher's, until the case is closed."""

    opened: messages.Opened
    audit_fd: int
    audit: str


class Collision(MachineError):
    """The addresses of a plan cannot be had in a launcher, in several starts: capture again, with another arena."""


class Launcher:
    """One launcher process, of one round. Leave its `with` block and it is gone."""

    def __init__(self, launchers: Launchers) -> None:
        self._launchers = launchers
        self._peer: Peer | None = launchers.take()
        self._case = ""
        self._audit = -1

    def __enter__(self) -> Launcher:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """May be called again."""
        self._forget()
        if self._peer is not None:
            self._peer.close()
            self._peer = None

    # ---- cases ---------------------------------------------------------------------------------------------------------

    def open(self, layout: Layout, arms: Sequence[PlanOfArm], contents: Contents, tolerances: Sequence[Tolerance]) -> Opened | Failure:
        """Open a case with one or two arms. A new process each time addresses are taken; Collision after STARTS of them.

        An open case is closed first.
        """
        if _overlap(arms):
            raise Collision(f"case {layout.case}: the arenas of the two plans overlap", next_step="capture one of them again")
        self.close_case()
        self._case = layout.case
        for _ in range(STARTS):
            found = self._opened(layout, arms, contents, tolerances)
            if found is not None:
                return found
            self._launchers.collisions += 1
            self.close()
            self._peer = self._launchers.take()
        what = f"case {layout.case}: the addresses of its plans were taken in {STARTS} launchers in a row"
        raise Collision(what, next_step="run it again: every capture draws other addresses")

    def close_case(self) -> None:
        """Give the case's memory back. A launcher that does not is replaced."""
        self._forget()
        if self._case and self._peer is not None:
            self._case = ""
            try:
                self._peer.tell(messages.Close())
            except Silence:
                self.close()
        if self._peer is None:
            self._peer = self._launchers.take()

    def _opened(
        self, layout: Layout, arms: Sequence[PlanOfArm], contents: Contents, tolerances: Sequence[Tolerance]
    ) -> Opened | Failure | None:
        """None: an address was taken."""
        bank, bank_fd = contents
        order = messages.Open(
            layout=layout,
            arena_bytes=max(a.arena_bytes for a in arms),
            arenas=tuple(a.arena for a in arms),
            plan_bytes=tuple(len(a.data) for a in arms),
            bank=bank,
            tolerances=tuple(tolerances),
            seed=secrets.randbits(63),
            audit=bank.kind,
        )
        with ExitStack() as stack:
            plans = [peer.sealed("plan", arm.data) for arm in arms]
            for fd in plans:
                stack.callback(os.close, fd)
            if bank.kind == "host":
                self._audit = wire.memfd("audit", layouts.audit(layout).size)
            audit = (self._audit,) if bank.kind == "host" else ()
            answer, fds = self._loaded(order, len(arms), (bank_fd, *plans, *audit))
        return answer if isinstance(answer, Failure) else self._accepted(answer, fds, bank.kind)

    def _loaded(self, order: messages.Open, arms: int, fds: Sequence[int]) -> tuple[messages.Opened | Failure, list[int]]:
        """The answer to an Open. A launcher that its only arm's images end is that arm's doing: the driver reads what it was given."""
        if self._peer is None:
            raise self._ours("no launcher any more: an order before failed")
        try:
            return self._peer.ask(order, messages.Opened, OPEN_S, fds)
        except Silence as silence:
            self.close()
            if arms == 1 and silence.status is not None and -silence.status in FAULTS:
                return self._failure(Reason.CRASH, f"the driver failed over its images: {silence}"), []
            raise self._ours(f"gave no answer: {silence}") from None

    def _accepted(self, answer: messages.Opened, fds: list[int], kind: str) -> Opened | Failure | None:
        if answer.fault is not None:
            for fd in fds:
                os.close(fd)
            return None if answer.fault.kind == "collision" else self._fault(answer.fault)
        if kind == "host" and not fds:
            return Opened(answer, self._audit, kind)
        if kind != "gpu" or len(fds) != 1:
            raise self._ours(f"sent {len(fds)} descriptors with an opened case")
        self._audit = fds[0]
        return Opened(answer, self._audit, kind)

    def _forget(self) -> None:
        if self._audit >= 0:
            os.close(self._audit)
            self._audit = -1

    # ---- orders --------------------------------------------------------------------------------------------------------

    def run(self, order: messages.Run, timeout_s: float = RUN_S) -> messages.Ran | Failure:
        return self._ran(order, messages.Ran, timeout_s, order.arm)

    def time(self, order: messages.Time, timeout_s: float = TIME_S) -> messages.Timed | Failure:
        """The subject answers for both: the opponent ran before, and alone."""
        return self._ran(order, messages.Timed, timeout_s, SUBJECT)

    def solo(self, order: messages.Solo, timeout_s: float = RUN_S) -> messages.Soloed | Failure:
        return self._ran(order, messages.Soloed, timeout_s, order.arm)

    def profile(self, order: messages.Profile, timeout_s: float = RUN_S) -> messages.Profiled | Failure:
        return self._ran(order, messages.Profiled, timeout_s, order.arm)

    def wind(self, order: messages.Wind, timeout_s: float = RUN_S) -> messages.Wound | Failure:
        return self._ran(order, messages.Wound, timeout_s, order.arm)

    def audit(self, order: messages.Audit, timeout_s: float = SMALL_S) -> Failure | None:
        answer, _ = self._asked(order, messages.Audited, timeout_s)
        return self._fault(answer.fault) if answer.fault else None

    def bench(self, timeout_s: float = TIME_S) -> messages.Benched:
        """Without a case."""
        answer, _ = self._asked(messages.Bench(), messages.Benched, timeout_s)
        if answer.fault:
            raise self._ours(answer.fault.detail)
        return answer

    def _ran(self, order: Struct, kind: type[R], timeout_s: float, arm: int) -> R | Failure:
        """An order that launches an arm: silence is the subject's doing when it was the subject."""
        if self._peer is None:
            raise self._ours("no launcher any more: an order before failed")
        try:
            answer, fds = self._peer.ask(order, kind, timeout_s)
        except Silence as silence:
            self.close()
            if arm == SUBJECT and (failure := self._silent(silence, timeout_s)):
                return failure
            raise self._ours(f"gave no answer: {silence}") from None
        _close(fds)
        return self._fault(answer.fault) if answer.fault else answer

    def _asked(self, order: Struct, kind: type[T], timeout_s: float, fds: Sequence[int] = ()) -> tuple[T, list[int]]:
        """An order in which nothing of a candidate's runs."""
        if self._peer is None:
            raise self._ours("no launcher any more: an order before failed")
        try:
            return self._peer.ask(order, kind, timeout_s, fds)
        except Silence as silence:
            self.close()
            raise self._ours(f"gave no answer: {silence}") from None

    # ---- faults --------------------------------------------------------------------------------------------------------

    def _silent(self, silence: Silence, timeout_s: float) -> Failure | None:
        """What the subject did when the launcher hung or was ended by it; None when that is not known."""
        if silence.timed_out:
            return self._failure(Reason.HANG, f"a launch had not ended after {timeout_s:g} s")
        if silence.status is not None and -silence.status in FAULTS:
            return self._failure(Reason.CRASH, f"the driver failed while it ran: {silence}")
        return None

    def _fault(self, fault: messages.Fault) -> Failure:
        """A fault of the subject's as its failure; all others are raised."""
        if fault.kind != "not-a-plan":
            self.close()  # after a fault nothing more can be done in its context
        if fault.kind == "memory":
            step = "make the case smaller: contents, sets, results and what they are compared with must fit on the card together"
            raise TaskError(f"case {self._case} does not fit on this card: {fault.detail}", where="task.toml", next_step=step)
        if fault.kind == "machine" or fault.arm != SUBJECT:
            whose = "the opponent, which passed before: " if fault.arm > SUBJECT else ""
            raise self._ours(whose + fault.detail)
        if fault.kind == "not-a-plan":
            return self._failure(Reason.NOT_A_PLAN, fault.detail)
        refused = "its launch was refused: " if fault.kind == "launch" else ""
        return self._failure(Reason.CRASH, refused + fault.detail)

    def _failure(self, reason: Reason, detail: str) -> Failure:
        return Failure(reason, f"case {self._case}: {detail}"[:MAX_DETAIL])

    def _ours(self, what: str) -> MachineError:
        where = f"launcher, case {self._case}" if self._case else "launcher"
        return MachineError(what, where=where, next_step="keepfast doctor")


class Launchers:
    """Starts launchers, and keeps one more that has started and waits for its first case.

    Close it, or leave its `with` block. `starts` and `collisions` are counted.
    """

    def __init__(self, card: str = "", index: int = 0, argv: Argv | None = None) -> None:
        """`card`: the UUID of the only one to see, which then is number 0; else number `index` of those that are visible."""
        self.starts = self.collisions = 0
        self._argv = argv or peer.command("keepfast.launcher.serve", str(0 if card else index), *_folder())
        self._env = peer.lean_environment(card, PACKAGES)
        self._spare: Peer | None = self._begun()

    def __enter__(self) -> Launchers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        if self._spare is not None:
            self._spare.close()
            self._spare = None

    def start(self) -> Launcher:
        """A launcher of its own, for one round."""
        return Launcher(self)

    def take(self) -> Peer:
        """The spare process; the next one starts now, while this one opens its case, and is done before anything is timed."""
        found = self._spare or self._begun()
        self._spare = self._begun()
        self.starts += 1
        return found

    def _begun(self) -> Peer:
        return Peer(self._argv, self._env, quiet=True)


def _folder() -> tuple[str, ...]:
    """Where launchers keep the kernels that they compile; none when others could write there, since what lies there is run."""
    folder = settings.cache_folder() / "launcher"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = folder.lstat()
    except OSError:
        return ()
    private = stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid() and not about.st_mode & 0o022
    return (str(folder),) if private else ()


def _overlap(arms: Sequence[PlanOfArm]) -> bool:
    spans = sorted((a.arena, a.arena + a.arena_bytes) for a in arms)
    return any(one[1] > other[0] for one, other in pairwise(spans))


def _close(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)
