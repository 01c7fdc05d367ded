"""`[engine]` of task.toml: in which real engine a keep is proven, and what must hold there.

Owns the keys and what they must satisfy. Must not know how an engine is run, nor what proves a keep.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, field

from keepfast.engine import graphs_off
from keepfast.engine.readers.base import NAMES as READERS
from keepfast.engine.slots import NAMES as SLOTS
from keepfast.errors import TaskError, nearest
from keepfast.model.task import Engine

if TYPE_CHECKING:
    from keepfast.task.file import Source

KINDS = ("transformers", "command")
DEVICES = ("cuda", "cpu")
DTYPES = ("bfloat16", "float16", "float32")
PHASES = ("decode", "prefill")
UNSHOWN = ("graphs", "engagement", "outputs", "memory")
MOST_CELLS = 64
ATTENTION = ("sdpa", "eager", "flex_attention", "flash_attention_2", "flash_attention_3", "sdpa_gqa", "sdpa_gqa_cudnn", "sdpa_gqa_exact")
COMPILE = ("default", "max-autotune")
WEIGHTS = ("sensitive", "library")
OPPONENTS = tuple(" ".join((name, mode)).strip() for mode in ("", *COMPILE) for name in ATTENTION)


class EngineKeys(Struct, frozen=True):
    kind: str = "transformers"
    model: str = ""
    slot: str = ""
    device: str = "cuda"
    dtype: str = "bfloat16"
    phases: tuple[str, ...] = ("decode",)
    contexts: tuple[int, ...] = (1024, 8192)
    batches: tuple[int, ...] = (1,)
    cells: tuple[tuple[int, int], ...] = ()
    rounds: int = 6
    worst_cell: float = 0.01
    memory: float = 0.01
    unshown: tuple[str, ...] = ()
    every: int | str = 0
    only: str = ""
    python: str = ""
    argv: tuple[str, ...] = ()
    server: tuple[str, ...] = ()
    ready: str = "/health"
    env: dict[str, str] = field(default_factory=dict)
    patched_args: tuple[str, ...] = ()
    patched_env: dict[str, str] = field(default_factory=dict)
    reader: str = ""
    engaged: str = ""
    limit_seconds: float = 1800.0
    attention: str = "sdpa"
    compile: str = ""
    steps: int = 20
    tokens: int = 32
    float32: bool = True
    weights: str = "sensitive"
    opponents: tuple[str, ...] = ()
    rows: int = 0


class Complain(Protocol):
    """Whoever can say on which line of a file a key is wrong."""

    def error(self, path: tuple[str | int, ...], what: str, next_step: str = "") -> TaskError: ...


def read(source: Source) -> Engine | None:
    """The table, checked; None where task.toml has none. TaskError says which key is wrong and what to type."""
    if "engine" not in source.data:
        return None
    if source.keys.engine.kind != "command" and not source.keys.engine.slot:
        raise source.error(("engine",), '[engine] kind = "transformers" needs `slot`', f"Slots: {', '.join(SLOTS)}")
    return checked(source, source.keys.engine)


def checked(source: Complain, keys: EngineKeys) -> Engine:
    """The keys as an `Engine`; whether there is a slot is the caller's to look at."""
    _words(source, keys)
    _numbers(source, keys)
    if keys.kind == "command":
        _command(source, keys)
    elif not keys.model:
        step = 'A folder with a checkpoint, or a name: model = "llama-3.1-8b"'
        raise source.error(("engine",), '[engine] kind = "transformers" needs `model`', step)
    return _made(keys)


def _made(keys: EngineKeys) -> Engine:
    pairs = keys.cells or tuple((c, b) for c in keys.contexts for b in keys.batches)
    return Engine(
        kind=keys.kind,
        model=keys.model,
        slot=keys.slot,
        device=keys.device,
        dtype=keys.dtype,
        cells=tuple((phase, context, batch) for phase in keys.phases for context, batch in pairs),
        rounds=keys.rounds,
        worst_cell=keys.worst_cell,
        memory=keys.memory,
        unshown=keys.unshown,
        every=1 if keys.every == "keep" else int(keys.every),
        only=keys.only,
        python=keys.python,
        argv=keys.argv,
        server=keys.server,
        ready=keys.ready,
        env=tuple(keys.env.items()),
        patched_args=keys.patched_args,
        patched_env=tuple(keys.patched_env.items()),
        reader=keys.reader,
        engaged=keys.engaged,
        limit_seconds=keys.limit_seconds,
        attention=keys.attention,
        compile=keys.compile,
        steps=keys.steps,
        tokens=keys.tokens,
        float32=keys.float32,
        weights=keys.weights,
        opponents=keys.opponents,
        rows=keys.rows,
    )


def _words(source: Complain, keys: EngineKeys) -> None:
    _one_of(source, "kind", keys.kind, KINDS)
    _one_of(source, "device", keys.device, DEVICES)
    _one_of(source, "dtype", keys.dtype, DTYPES)
    _one_of(source, "slot", keys.slot, ("", *SLOTS))
    _one_of(source, "reader", keys.reader, ("", *READERS))
    _one_of(source, "attention", keys.attention, ATTENTION)
    _one_of(source, "compile", keys.compile, ("", *COMPILE))
    _one_of(source, "weights", keys.weights, WEIGHTS)
    for name in keys.opponents:
        _one_of(source, "opponents", name, OPPONENTS)
    for phase in keys.phases:
        _one_of(source, "phases", phase, PHASES)
    for name in keys.unshown:
        _one_of(source, "unshown", name, UNSHOWN)
    if isinstance(keys.every, str):
        _one_of(source, "every", keys.every, ("keep",))


def _one_of(source: Complain, key: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        shown = ", ".join(f'"{name}"' for name in known if name)
        raise source.error(("engine", key), f"[engine] `{key}` cannot be `{value}`.{nearest(value, known)}", f"One of: {shown}")


def _numbers(source: Complain, keys: EngineKeys) -> None:
    cells = len(keys.phases) * (len(keys.cells) or len(keys.contexts) * len(keys.batches))
    sizes = [n for pair in keys.cells for n in pair] + [*keys.contexts, *keys.batches]
    rules = (
        ("rounds", 3 <= keys.rounds <= 100, "must be from 3 to 100: fewer give no interval"),
        ("worst_cell", 0 < keys.worst_cell < 1, "is a share of time, above 0 and below 1: 0.01 is one per cent"),
        ("memory", 0 <= keys.memory < 10, "is a share of stock's peak, at least 0: 0.01 is one per cent"),
        ("steps", 1 <= keys.steps <= 10000, "must be from 1 to 10000"),
        ("tokens", 1 <= keys.tokens <= 4096, "must be from 1 to 4096"),
        ("opponents", len(set(keys.opponents)) == len(keys.opponents), "names one twice"),
        ("opponents", keys.kind == "transformers" or not keys.opponents, 'are of kind = "transformers": configurations of its library'),
        ("rows", keys.rows >= 0, "is a number of rows, 0 for any"),
        ("rows", keys.slot == "linear" or not keys.rows, "is of the slot `linear`: more rows go to the model's own product"),
        ("rows", "prefill" not in keys.phases or not keys.rows, 'leaves prompts to the model: phases = ["decode"]'),
        ("limit_seconds", 0 < keys.limit_seconds <= 86400, "must be above 0 and at most 86400"),
        ("every", isinstance(keys.every, str) or keys.every >= 0, 'must be "keep", or a number: every so many keeps, 0 for never'),
        ("cells", 0 < cells <= MOST_CELLS, f"make {cells} cells with `phases`, from 1 to {MOST_CELLS} can be measured"),
        ("contexts", all(n >= 1 for n in sizes), "and `batches` and `cells` hold whole numbers above 0"),
    )
    for key, holds, why in rules:
        if not holds:
            raise source.error(("engine", key), f"[engine] `{key}` {why}")


def _command(source: Complain, keys: EngineKeys) -> None:
    if not keys.argv:
        step = 'argv = ["vllm", "bench", "latency", "--input-len", "{context}", "--batch-size", "{batch}", "--output-json", "{out}"]'
        raise source.error(("engine",), '[engine] kind = "command" needs `argv`', step)
    if not (keys.patched_args or keys.patched_env):
        step = 'For example: patched_env = { PYTHONPATH = "{kernel}" }; {kernel} is a folder with the files of the kept kernel'
        raise source.error(
            ("engine",), "both arms would be the same: neither `patched_args` nor `patched_env` says how the kernel gets in", step
        )
    if "outputs" not in keys.unshown:
        step = 'unshown = ["outputs"] accepts the kernel\'s own check in place of logits, at a lower class of evidence'
        raise source.error(("engine", "unshown"), "a command gives no logits, so it cannot show that outputs are the same", step)
    if keys.device == "cpu":
        return
    for key, words, env in (
        ("argv", keys.argv, keys.env.items()),
        ("server", keys.server, ()),
        ("patched_args", keys.patched_args, keys.patched_env.items()),
    ):
        if found := graphs_off.named(words, env):
            step = "Take it out: without graphs a gain says nothing about serving"
            raise source.error(("engine", key), f"turns CUDA graphs off: {', '.join(found)}", step)


def unfit(engine: Engine | None, task: str) -> Engine:
    """The table, or TaskError that says how to write one."""
    if engine is not None:
        return engine
    raise TaskError(
        "has no [engine], so there is nothing to prove a keep in",
        where=f"{task}/task.toml",
        next_step='[engine] model = "llama-3.1-8b", slot = "attention_decode"   (docs/e2e.md)',
    )
