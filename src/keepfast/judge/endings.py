"""Sentences for how a runner failed: signals, exits, silence, and words out of turn.

Owns `Failure` and the wording. Takes what the runner said about itself as a hint for the wording only: the reason is always
what the judge saw. Must not know tasks, measurements or how a process is held.
"""

from __future__ import annotations

import signal

from msgspec import Struct

from keepfast.model import Reason

MAX_DETAIL = 400
FAULTS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT)  # what the runner's handler speaks of
SEGV_UNMAPPED, SEGV_FORBIDDEN, FPE_INTEGER = 1, 2, 1  # si_code, see sigaction(2)
_LIMITS = {
    signal.SIGXCPU: "SIGXCPU: used up its CPU time",
    signal.SIGXFSZ: "SIGXFSZ: wrote a file larger than it may",
    signal.SIGKILL: "SIGKILL: the kernel killed it, most likely because memory ran out",
}
_CRASHES = {
    signal.SIGSEGV: "SIGSEGV: touched memory that it may not: a read-only argument, past an end, or a null pointer",
    signal.SIGBUS: "SIGBUS: touched memory that is not there",
    signal.SIGFPE: "SIGFPE: an arithmetic fault",
    signal.SIGILL: "SIGILL: an instruction that this CPU does not have, or a trap by the compiler",
    signal.SIGABRT: "SIGABRT: it gave up by abort()",
    signal.SIGSYS: "SIGSYS: a system call that it may not make",
    signal.SIGTRAP: "SIGTRAP: a trap by the compiler",
}


class Failure(Struct, frozen=True):
    """What a candidate did wrong in its runner. `cheat`: of a kind that only a trick produces."""

    reason: Reason
    detail: str
    cheat: bool = False


class Buffer(Struct, frozen=True):
    """A mapped buffer, for wording."""

    name: str
    size: int
    writable: bool


class Crash(Struct, frozen=True):
    """What the runner's fault handler said. Hostile like all it says: `of` drops numbers out of range, and signals it does not handle."""

    signal: int
    code: int = 0
    page: int | None = None
    buffer: int | None = None
    offset: int | None = None
    deep: bool = False  # near the end of the stack

    @classmethod
    def of(cls, said: dict[str, object]) -> Crash | None:
        numbers = {key: value for key, value in said.items() if type(value) is int}
        number = numbers.get("signal", 0)
        if number not in FAULTS:
            return None
        return cls(number, numbers.get("code", 0), numbers.get("address"), numbers.get("buffer"), numbers.get("offset"), "stack" in numbers)


def ended(status: int, crash: Crash | None, buffers: tuple[Buffer, ...], last_words: str) -> Failure:
    """A runner that ended by itself. `status`: its exit code, or minus the number of the signal that ended it."""
    if crash is None and status >= 0:
        return Failure(Reason.CRASH, _with(f"exited (code {status}); a kernel has to return", last_words))
    number = crash.signal if crash else -status
    for known, text in _LIMITS.items():
        if number == known:
            return Failure(Reason.LIMITS, _with(text, last_words))
    return Failure(Reason.CRASH, _with(_crash(number, crash, buffers), last_words))


def _crash(number: int, crash: Crash | None, buffers: tuple[Buffer, ...]) -> str:
    if crash and number == signal.SIGSEGV and (place := _place(crash, buffers)):
        return f"SIGSEGV: {place}"
    if crash and number == signal.SIGFPE and crash.code == FPE_INTEGER:
        return "SIGFPE: divided an integer by zero"
    return next((text for known, text in _CRASHES.items() if known == number), f"ended by signal {number}")


def _place(crash: Crash, buffers: tuple[Buffer, ...]) -> str:
    """Where the fault was, in words, or an empty string."""
    if crash.buffer is not None and crash.offset is not None and 0 <= crash.buffer < len(buffers):
        return _in_buffer(buffers[crash.buffer], crash.offset)
    if crash.deep:
        return "ran out of stack: a large array in a function, or endless recursion"
    if crash.page == 0:
        return "used a null pointer: an optional argument that is not given, or an allocation that failed (memory is limited)"
    return ""


def _in_buffer(buffer: Buffer, offset: int) -> str:
    if offset < 0:
        return f"touched memory {-offset} bytes before the start of {buffer.name}"
    if offset >= buffer.size:
        return f"touched memory {offset - buffer.size} bytes past the end of {buffer.name}"
    if not buffer.writable:
        return f"wrote to a read-only argument (byte {offset} of {buffer.name})"
    return f"touched {buffer.name} in a way that is not allowed"


def silent(timeout_s: float, cpu_ns: int, what: str) -> Failure:
    """No answer in the time allowed."""
    doing = "it was computing" if cpu_ns > 0.5e9 * timeout_s else "it was waiting"
    return Failure(Reason.HANG, f"no answer to {what} within {timeout_s:.1f} s; {doing} ({cpu_ns / 1e9:.2f} s of CPU time)")


def broke_protocol(detail: str, *, cheat: bool = False) -> Failure:
    return Failure(Reason.PROTOCOL, detail[:MAX_DETAIL], cheat)


def too_many_cores(cpu_ns: int, ns: int, threads: int) -> Failure:
    return Failure(Reason.CORES, f"used {cpu_ns / 1e6:.1f} ms of CPU time in {ns / 1e6:.1f} ms with threads = {threads}")


def _with(text: str, last_words: str) -> str:
    return f"{text}; its last words: {last_words}"[:MAX_DETAIL] if last_words else text[:MAX_DETAIL]
