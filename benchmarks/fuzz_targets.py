"""Everything that reads what others wrote, as targets of `fuzzing`: the judge's processes, the texts of a task and a candidate, what agents
say, the ledger. Each with seeds that are right, and the errors that it declares.
"""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import struct
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from fuzzing import Target

from keepfast import expr, wire
from keepfast.capture import handover
from keepfast.errors import KeepfastError, LedgerError, TaskError, UsageError
from keepfast.gpu import cubin, messages, plan
from keepfast.judge import channel, elf, endings
from keepfast.judge.gpu import provenance
from keepfast.ledger import Ledger, store
from keepfast.model import Event, Experiment, File, Idea, Kind, Machine, Reason, Round, Run, TurnNote, Verdict
from keepfast.propose import outside
from keepfast.propose.agent import Job
from keepfast.propose.chat import answer, edits
from keepfast.propose.chat.anthropic import Messages
from keepfast.propose.chat.sse import Events
from keepfast.propose.chat.talk import Count, Malformed, Reply, Spoken, Stop, TooLong
from keepfast.propose.chat.wire import ChatCompletions
from keepfast.propose.command import claude, codex, gemini, opencode, pi
from keepfast.propose.command.listen import Lines
from keepfast.propose.command.notes import Notes, read_event
from keepfast.report import escape
from keepfast.task import file, rules, signature, tunables

# --------------------------------------------------------------------------------------------- targets: the judge's processes


def frame(data: bytes) -> None:
    wire.unframe(data)


def received(data: bytes) -> None:
    """As it arrives on a socket, whole and then closed."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        with suppress(BlockingIOError):
            theirs.send(data)
        theirs.close()
        _, fds = wire.receive(ours, timeout_s=1.0)
        for fd in fds:
            os.close(fd)


def layout(data: bytes) -> None:
    memory = bytearray(4096)
    for tensor in wire.read_layout(data):
        if isinstance(tensor, wire.Tensor):
            with suppress(wire.WireError):
                wire.view(memory, tensor).nbytes  # noqa: B018


def runner_said(data: bytes) -> None:
    """An answer of a runner that holds hostile code, as the judge words it."""
    reply = channel._frame(data)
    crash = endings.Crash.of(reply) if reply else None
    buffers = (endings.Buffer("x", 4096, False), endings.Buffer("out", 4096, True))
    said = endings.ended(-(crash.signal if crash else 11), crash, buffers, data.decode("utf-8", "replace")[:200])
    if len(said.detail) > endings.MAX_DETAIL:
        raise AssertionError("a sentence that is too long")


def launch_plan(data: bytes) -> None:
    found = plan.decode(data)
    found.signature()
    found.signature(exact_scalars=True)
    found.uneven()
    found.kernels()


def captured(data: bytes) -> None:
    msgspec.convert(wire.unframe(data), messages.Captured)


def record(data: bytes) -> None:
    """A record of a GPU process in its memfd."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        fd = wire.memfd("record", max(1, len(data)))
        try:
            os.pwrite(fd, data, 0)
            wire.send(theirs, {"bytes": len(data)}, [fd])
        finally:
            os.close(fd)
        _, fds = messages.receive(ours, messages.Opened, timeout_s=1.0)
        for each in fds:
            os.close(each)


def handed_over(data: bytes) -> None:
    """What a capture says that its Triton images are made of."""
    handover.decode(data)


def some_ir() -> bytes:
    options = handover.Options(4, 1, 3, None, 87, "-O2", True, True)
    return handover.encode((handover.Source(bytes(32), "ttir", b"module {}", options), handover.Source(bytes(32), "ttgir", b"", options)))


def image(data: bytes) -> None:
    cubin.code_hash(data)
    with suppress(ValueError):
        cubin.body(data)
    cubin.kept_bytes(data)
    cubin.low_sums(data, {"kernel"})


def shared_object(data: bytes) -> None:
    path = Path(_folder()) / "object.so"
    path.write_bytes(data)
    elf.code_hash(path)
    elf.contents(path)


def kernel_name(data: bytes) -> None:
    name = data.decode("utf-8", "replace")
    provenance.classify(name)
    provenance.short(name)


def python_source(data: bytes) -> None:
    provenance.jitted((File("kernel.py", data),))
    rules.prepares("kernel.py", data.decode("utf-8", "replace"))


def c_source(data: bytes) -> None:
    rules.prepares("kernel.c", "prepare " + data.decode("utf-8", "replace"))


# --------------------------------------------------------------------------------------------- targets: texts of task and candidate


def tunable_space(data: bytes) -> None:
    space = tunables.parse(data.decode("utf-8", "replace"))
    tunables.header(space)
    tunables.python(space)


def task_file(data: bytes) -> None:
    file.parse(data.decode("utf-8", "replace"))


def calling_contract(data: bytes) -> None:
    signature.parse(data.decode("utf-8", "replace"))


def expression(data: bytes) -> None:
    found = expr.parse(data.decode("utf-8", "replace"), ("m", "n"))
    for value in (0, 1, 4096, 2**40):
        with suppress(expr.ExprError):
            found.value({"m": value, "n": 3})


# --------------------------------------------------------------------------------------------- targets: what agents say


def hearer(hear: Callable[[Any, Notes], None]) -> Callable[[bytes], None]:
    """The output of a coding agent, in pieces."""

    def run(data: bytes) -> None:
        notes = Notes()

        def take(line: bytes) -> None:
            if (event := read_event(line)) is not None:
                hear(event, notes)

        lines = Lines(take)
        for at in range(0, len(data), 1000):
            lines.feed(data[at : at + 1000])
        lines.finish()
        if len(notes.said) > 4000 or len(notes.errors) > 20 or notes.usage.tokens < 0:
            raise AssertionError("notes beyond their caps")

    return run


def stream(dialect: Any) -> Callable[[bytes], None]:
    """Events of a model's server, in pieces, through the decoder of one dialect."""

    def run(data: bytes) -> None:
        events, decoder = Events(), dialect.decoder()
        for at in range(0, len(data), 700):
            for event, said in events.feed(data[at : at + 700]):
                decoder.feed(event, said)
        for event, said in events.end():
            decoder.feed(event, said)
        if decoder.finished:
            decoder.reply()

    return run


def edit_blocks(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    found = edits.parse(text)
    edits.apply(found.blocks, {"kernel.c": b"int a;\nint b;\n"}, lambda path: "")
    if edits.parse(edits.render(found.edits)).edits != found.edits and "\r" not in text:
        raise AssertionError("what was rendered is read as something else")


def model_answer(data: bytes) -> None:
    job = Job((File("kernel/kernel.c", b"int a;\nint b;\n"),), (), "", (), editable=("kernel/**",))
    answer.read(Reply(data.decode("utf-8", "replace"), (), Stop.END, Count(), "m", "{}", len(data)), job, None)


def from_outside(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    with suppress(UsageError):
        outside.read_try(text)
    outside.read_submit(text)


def shown(data: bytes) -> None:
    """Foreign text on its way to a terminal."""
    said = escape.line(data.decode("utf-8", "replace"))
    if any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 or c in "\u202e\u2028\u2029" for c in said):
        raise AssertionError("a control character gets through")


# --------------------------------------------------------------------------------------------- targets: the ledger

KINDS: tuple[type[msgspec.Struct], ...] = (Experiment, Event, Run, Round, Idea, TurnNote)


def ledger_record(data: bytes) -> None:
    found = 0
    for kind in KINDS:
        with suppress(LedgerError):
            store.decode(data, kind, "here")
            found += 1
    if not found:
        raise LedgerError("no record of any kind")


def ledger_file(data: bytes) -> None:
    """A database with bytes of somebody else."""
    folder = Path(_folder())
    for name in ("ledger.db", "ledger.db-wal", "ledger.db-shm"):
        (folder / name).unlink(missing_ok=True)
    (folder / "ledger.db").write_bytes(data)
    with Ledger.open(folder, readonly=True) as ledger:
        for run in ledger.runs():
            ledger.experiments(run.id, rounds=True)
            ledger.broken(run.id)
            ledger.events(run.id)
            ledger.notes(run.id)
            ledger.directs(run.id)


_MADE: list[tempfile.TemporaryDirectory[str]] = []


def _folder() -> str:
    if not _MADE:
        _MADE.append(tempfile.TemporaryDirectory(prefix="keepfast-fuzz-"))
    return _MADE[0].name


# --------------------------------------------------------------------------------------------- seeds


def a_plan() -> bytes:
    name = b"\x7fELF...rms_norm..."
    kernel = plan.Kernel(0, "rms_norm", (16, 1, 1), (256, 1, 1), 1024, ((0, b"\0" * 8), (8, b"\1" * 4)), (2, 1, 1))
    nodes = (
        plan.Node(0, plan.Memset(4096, 0, 0, 4, 2, 1), ()),
        plan.Node(0, kernel, (0,)),
        plan.Node(1, kernel, ()),
        plan.Node(1, plan.Copy(8192, 64, 9000, 64, 8, 2), (2,)),
    )
    results = ((plan.Segment(12288, 64),), (plan.Segment(12352, 64),))
    made = plan.Plan(
        plan.VERSION, "wide", 2, 4096, (name,), nodes, (plan.Segment(4096, 1 << 20),), results, (plan.Block(16384, b"\1" * 32),)
    )
    return plan.encode(made)


def an_elf() -> bytes:
    names = b"\0.text.kernel\0.nv.global\0.nv.constant0.kernel\0.dynamic\0.shstrtab\0"
    parts = [(b".text.kernel", 1, 6, struct.pack("<QQ", 0x723C, 0x804) * 4), (b".nv.global", 8, 3, b"\0" * 8)]
    parts += [(b".nv.constant0.kernel", 1, 2, b"\0" * 8), (b".dynamic", 6, 3, struct.pack("<QQ", 1, 1)), (b".shstrtab", 3, 0, names)]
    body, heads = bytearray(64), [b"\0" * 64]
    for name, kind, flags, data in parts:
        heads.append(struct.pack("<IIQQQQIIQQ", names.index(name), kind, flags, 0, len(body), len(data), 5, 0, 1, 0))
        body += data
    body[:64] = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack(
        "<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, len(body), 0, 64, 56, 0, 64, len(heads), 5
    )
    return bytes(body) + b"".join(heads)


def a_ledger() -> bytes:
    with tempfile.TemporaryDirectory() as name:
        with Ledger.open(Path(name)) as ledger:
            ledger.start(a_run())
            ledger.append("r-1", an_experiment())
        connection = sqlite3.connect(Path(name) / "ledger.db")
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.close()
        return (Path(name) / "ledger.db").read_bytes()


def a_run() -> Run:
    return Run(
        "r-1", "softmax", "t" * 64, "tasks/softmax", "keepfast/r-1", "b" * 40, "a" * 40, 7, 1.7e9, Machine("cpu", 2, "6", "gcc", "walls")
    )


def an_experiment() -> Experiment:
    verdict = Verdict(Kind.REJECT, Reason.WRONG, "case wide: out[3]")
    return Experiment(
        1, "deck", "a change", "deck/001.patch", 3, "f" * 64, "c" * 40, 0, verdict, 1.7e9, 2.5, (("BLOCK", 32), ("MODE", "row"))
    )


EVENTS: dict[str, tuple[Any, ...]] = {
    "claude": (
        {"type": "assistant", "message": {"content": [{"type": "text", "text": "done"}]}, "session_id": "a-1"},
        {"type": "system", "subtype": "api_retry", "error": "overloaded", "attempt": 1, "error_status": 529, "retry_delay_ms": 200},
        {"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", "resetsAt": 1700000000}},
        {
            "type": "result", "subtype": "success", "is_error": False, "result": "IDEA: wider", "num_turns": 3, "total_cost_usd": 0.1,
            "modelUsage": {"m": {"inputTokens": 1, "outputTokens": 2}},
            "permission_denials": [{"tool_name": "Bash", "tool_input": {"command": "ls"}}],
        },
    ),
    "codex": (
        {"type": "thread.started", "thread_id": "t-1"},
        {"type": "item.completed", "item": {"type": "agent_message", "text": "done"}},
        {"type": "turn.completed", "usage": {"input_tokens": 5, "output_tokens": 6, "cached_input_tokens": 1}},
        {"type": "turn.failed", "error": {"message": "no"}},
    ),
}  # fmt: skip
OTHERS = (
    {"type": "message", "role": "assistant", "content": "done", "delta": True, "stats": {"total_tokens": 4}, "sessionID": "s-1"},
    {"type": "step_finish", "part": {"cost": 0.1, "tokens": {"input": 1, "output": 2, "cache": {"read": 1}}, "type": "text", "text": "x"}},
    {
        "type": "message_end",
        "message": {"role": "assistant", "content": [{"type": "text", "text": "x"}], "usage": {"input": 1, "cost": {"total": 1}}},
    },
    {"type": "error", "error": {"name": "APIError", "data": {"message": "no", "statusCode": 429}}, "message": "no", "status": "error"},
    {"type": "result", "status": "success", "stats": {"models": {"m": {"tokens": {"input": 1}}}, "input_tokens": 3}},
)
CHUNKS = (
    {"id": "1", "model": "m", "choices": [{"index": 0, "delta": {"role": "assistant", "content": "hello"}, "finish_reason": None}]},
    {"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "try", "arguments": '{"a":1}'}}]}}]},
    {"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 4, "completion_tokens": 2, "cost": 0.1}},
)
BLOCKS = (
    {"type": "message_start", "message": {"model": "m", "usage": {"input_tokens": 3}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hello"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}},
    {"type": "message_stop"},
)
EDITS = b"""title
<<<<<<< SEARCH kernel/kernel.c
int a;
=======
int c;
>>>>>>> REPLACE
<<<<<<< FILE kernel/new.c
x
>>>>>>> END
<<<<<<< DELETE kernel.c
>>>>>>> END
"""
TOML = b"""schema = 1
signature = "f(Tensor x) -> Tensor"
axes = ["n"]
[[case]]
n = 4
[rules]
min_axis = { n = 4 }
[limit]
bytes = "8*n"
"""
TUNABLES = b"""constraints = ["BLOCK <= 64"]
[BLOCK]
log2 = [16, 64]
value = 32
[U]
range = [1, 8, 1]
value = 4
[L]
choices = ["row", 1]
value = "row"
"""
C_SOURCE = b"""#include "keepfast.h"
/* a */ static int prepare(const float *w) { return w != 0; }
int kernel(void) { char c = '"'; return "x{"[0] + c; }
"""
SIGNATURE = b'a::f.out(Tensor(a!) x, int k=3, *, Tensor? m=None, str s="u") -> (Tensor v, Tensor i)'
PY_SOURCE = b"import triton\nfrom triton import jit as j\n@j(do_not_specialize=[1])\ndef k(x):\n    pass\ndef prepare(w):\n    return w\n"


def _lines(events: Sequence[Any]) -> tuple[bytes, ...]:
    each = tuple(json.dumps(e).encode() for e in events)
    return (*each, b"\n".join(each) + b"\n")


def _sse(events: Sequence[Any]) -> tuple[bytes, ...]:
    said = [f"event: {e.get('type', '')}\ndata: {json.dumps(e)}\n\n".encode() for e in events]
    return (*said, b"".join(said), b"data: [DONE]\n\n")


def targets() -> tuple[Target, ...]:
    """All of them, in order of what stands behind: the judge, the task, the agents, the ledger."""
    packed = wire.encode({"op": "call", "nonce": 7, "ok": True, "rc": 0, "ns": 12345, "a": [1, 2.5, {"b": "x"}]})
    crash = wire.encode({"op": "crash", "signal": 11, "code": 1, "address": 4096, "buffer": 0, "offset": 4100, "stack": True})
    capture = wire.encode(
        {"error": "", "detail": "", "case": "", "cases": [{"case": "wide", "plan_bytes": 10, "host_us": 1.5}], "versions": [["torch", "2"]]}
    )
    tensor = msgspec.json.encode((wire.Tensor("x", "float32", (3, 4), (16, 4), 0, 48), wire.Scalar("n", "int")))
    opened = msgspec.msgpack.encode(messages.Opened((), 4096, 1 << 20, 0.5))
    names = (
        b"_ZN2at6native13reduce_kernelILi512EEEvT1_",
        b"void at::native::(anonymous namespace)::f<4>(int)",
        b"triton_poi_fused_mul_0",
        b"_ZN99999at",
    )
    run, experiment = msgspec.msgpack.encode(a_run()), msgspec.msgpack.encode(an_experiment())
    event = msgspec.msgpack.encode(Event("verdict", "x", n=3, turn=TurnNote("claude", "edited", 3, 1)))
    submit = outside.encode(outside.Submit("1", (("kernel.c", b"x"),), 1, "title")).encode()
    hearers = {"claude": claude.hear, "codex": codex.hear, "gemini": gemini.hear, "opencode": opencode.hear, "pi": pi.hear}
    spoken = (Malformed, TooLong, Spoken)
    return (
        Target("wire frame", frame, (wire.WireError,), (packed, crash)),
        Target("wire socket", received, (wire.WireError,), (packed, b"\xff\xff\xff\x7f" + packed)),
        Target("wire layout", layout, (wire.WireError,), (tensor,), "json"),
        Target("runner answer", runner_said, (), (packed, crash)),
        Target("launch plan", launch_plan, (plan.PlanError,), (a_plan(),), "msgpack"),
        Target("capture answer", captured, (wire.WireError, msgspec.ValidationError), (capture,)),
        Target("gpu record", record, (wire.WireError,), (opened,), "msgpack"),
        Target("kernel image", image, (ValueError,), (an_elf(),)),
        Target("IR of a capture", handed_over, (handover.Unreadable,), (b"", some_ir()), "msgpack"),
        Target("shared object", shared_object, (ValueError,), (an_elf(),)),
        Target("kernel name", kernel_name, (), names),
        Target("python source", python_source, (), (PY_SOURCE,)),
        Target("c source", c_source, (), (C_SOURCE,)),
        Target("tunables.toml", tunable_space, (TaskError,), (TUNABLES,)),
        Target("task.toml", task_file, (TaskError,), (TOML,)),
        Target("signature", calling_contract, (TaskError,), (SIGNATURE,)),
        Target("expression", expression, (expr.ExprError,), (b"4*m + ceil(n/8)**2 // max(1, m % 7) - (m < n and not n == 3)",)),
        *(Target(f"agent {name}", hearer(hear), (), _lines((*EVENTS.get(name, ()), *OTHERS)), "json") for name, hear in hearers.items()),
        Target("chat completions", stream(ChatCompletions()), spoken, _sse(CHUNKS)),
        Target("chat messages", stream(Messages()), spoken, _sse(BLOCKS)),
        Target("chat edits", edit_blocks, (), (EDITS,)),
        Target("chat answer", model_answer, (), (EDITS, b"<think>x</think>\nSUBMIT\n", b"I cannot help with that.")),
        Target("outside message", from_outside, (UsageError,), (submit,), "json"),
        Target("shown text", shown, (), (b"a \x1b[31mred\x1b[0m title", "‮abc é 中".encode())),
        Target("ledger record", ledger_record, (LedgerError,), (run, experiment, event), "msgpack"),
        Target("ledger file", ledger_file, (KeepfastError,), (a_ledger(),)),
    )  # fmt: skip


def close() -> None:
    """Remove the folder that file targets write to."""
    while _MADE:
        _MADE.pop().cleanup()
