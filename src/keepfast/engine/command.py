"""The engine `command`: any benchmark that prints JSON, stock and patched: the same command with other environment and arguments.

Owns the order of starts (every arm of every cell once a round, shuffled), what of an output becomes a lap, and what is said of graphs and
engagement. Must not know formats (`readers`) nor what makes a proof. A stock arm that fails is the machine's or the task's; a patched
arm that fails is the kernel's, and is written into the account as `ARM: what happened`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from keepfast.engine import graphs_off, server
from keepfast.engine.base import STOCK, Account, Cell, Graphs, Lap, Slot
from keepfast.engine.process import Ended, run
from keepfast.engine.readers import choose, logs
from keepfast.engine.readers.base import Asked, Reading, Unreadable
from keepfast.errors import KeepfastError, MachineError, TaskError

OUTPUT_TOKENS = ("--output-len", "--random-output-len", "-n", "--n-gen")
MOST_FILE = 64 << 20  # bytes of a result file


class CommandArm(Struct, frozen=True):
    """`folder`: what {kernel} stands for; "" in stock."""

    name: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    folder: str = ""
    task: str = ""


class CommandPlan(Struct, frozen=True):
    """`env`: the whole environment of both arms. Of `cells` context and batch are filled into `argv`, each pair once.

    `server`: what `argv` asks; then arguments and environment of an arm are the server's, whose log tells of graphs.
    """

    argv: tuple[str, ...]
    cells: tuple[Cell, ...]
    arms: tuple[CommandArm, ...]
    env: tuple[tuple[str, str], ...]
    server: tuple[str, ...] = ()
    ready: str = "/health"
    model: str = ""
    reader: str = ""
    engaged: str = ""
    slot: str = ""
    device: str = "cuda"
    machine: str = ""
    limit_s: float = 1800.0
    cwd: str = "."


class Started(Struct, frozen=True):
    """One start that ended well."""

    readings: tuple[Reading, ...]
    graphs: logs.Counted
    engaged: int  # times that the words of `engaged` were printed
    served: bool
    reader: str
    peak_bytes: int


class CommandEngine:
    """`rng` shuffles; `said` gets a line of progress for each start."""

    name = "command"

    def __init__(self, plan: CommandPlan, *, rng: Random, said: Callable[[str], None] = lambda line: None) -> None:
        self.plan, self.rng, self.said = plan, rng, said

    def account(self, rounds: int) -> Account:
        _refuse_without_graphs(self.plan)
        pairs = tuple(dict.fromkeys((c.context, c.batch) for c in self.plan.cells)) if _has_cells(self.plan.argv) else ((0, 0),)
        book = _Book(self.plan)
        for i in range(rounds):
            for pair in pairs:
                for arm in self.rng.sample(self.plan.arms, len(self.plan.arms)):
                    self.said(f"round {i + 1} of {rounds}, {arm.name}" + (f", context {pair[0]} x {pair[1]}" if pair[0] else ""))
                    book.add(i, arm, self._start(arm, pair, book))
        return book.account()

    def _start(self, arm: CommandArm, pair: tuple[int, int], book: _Book) -> Started | None:
        """None once this patched arm has failed: it is not started again."""
        if arm.name in book.failed:
            return None
        try:
            return started(self.plan, arm, pair)
        except KeepfastError as error:
            if arm.name == STOCK:
                raise
            book.failed[arm.name] = error.what
            return None


def started(plan: CommandPlan, arm: CommandArm, pair: tuple[int, int]) -> Started:
    """One start, to its end. MachineError when it takes too long or fails, TaskError when its output cannot be read."""
    with tempfile.TemporaryDirectory(prefix="keepfast-e2e-") as place:
        out, port = Path(place) / "result.json", server.free_port()
        given = {"{context}": str(pair[0]), "{batch}": str(pair[1]), "{out}": str(out), "{kernel}": arm.folder, "{port}": str(port)}
        argv = tuple(_filled(word, given) for word in (*plan.argv, *(() if plan.server else arm.args)))
        env = dict(plan.env) | {name: _filled(value, given) for name, value in arm.env}
        log = Path(place) / "server.log"
        if plan.server:
            serves = tuple(_filled(word, given) for word in (*plan.server, *arm.args))
            with server.serving(server.Server(serves, plan.ready, port, plan.limit_s), env, plan.cwd, log):
                ended = run(argv, dict(plan.env), plan.cwd, plan.limit_s)
        else:
            ended = run(argv, env, plan.cwd, plan.limit_s)
        if ended.why:
            raise MachineError(f"{argv[0]} {ended.why}{_last_words(ended)}", where="engine command", next_step="Type the command by hand")
        ended = replace(ended, stderr=f"{ended.stderr}\n{server.text(log)}")
        return _read(plan, ended, _result(out), Asked(*pair, _output_tokens(argv)))


def _read(plan: CommandPlan, ended: Ended, written: str, asked: Asked) -> Started:
    log = f"{ended.stdout}\n{ended.stderr}"
    try:
        found = choose.tables(written) or choose.tables(ended.stdout)
        reader, mine = choose.chosen(found, plan.reader)
        readings = reader.read(mine, asked)
    except Unreadable as why:
        step = "Let the command write JSON to {out}, or to its standard output; docs/e2e.md names the formats"
        cut = " (the output was cut)" if ended.cut else ""
        raise TaskError(f"the benchmark's output: {why}{cut}", where="[engine] argv", next_step=step) from None
    engaged = log.count(plan.engaged) if plan.engaged else 0
    return Started(readings, logs.graphs(log), engaged, reader.served, reader.name, ended.peak_bytes)


def _filled(word: str, given: Mapping[str, str]) -> str:
    for name, value in given.items():
        word = word.replace(name, value)
    return word


def _has_cells(argv: tuple[str, ...]) -> bool:
    return any("{context}" in word or "{batch}" in word for word in argv)


def _output_tokens(argv: tuple[str, ...]) -> int:
    """Tokens to generate, as the command says; vLLM's own default otherwise."""
    for flag, value in zip(argv, (*argv[1:], ""), strict=True):
        name, equals, inline = flag.partition("=")
        text = inline if equals else value
        if name in OUTPUT_TOKENS and text.isdigit():
            return int(text)
    return 128


def _result(out: Path) -> str:
    if not out.is_file():
        return ""
    with out.open("rb") as file:
        return file.read(MOST_FILE).decode(errors="replace")


def _last_words(ended: Ended) -> str:
    lines = [line for line in (ended.stderr or ended.stdout).splitlines() if line.strip()]
    return f": {lines[-1].strip()[:300]}" if lines else ""


def _refuse_without_graphs(plan: CommandPlan) -> None:
    """TaskError that names what turns graphs off, in the command, an arm or the environment; a CPU has none to turn off."""
    if plan.device == "cpu":
        return
    for arm in plan.arms:
        found = graphs_off.named((*plan.argv, *plan.server, *arm.args), (*plan.env, *arm.env))
        if found:
            what = f"CUDA graphs are turned off in arm `{arm.name}`: {', '.join(found)}"
            raise TaskError(what, where="[engine]", next_step="Take it out, or unset it: without graphs a gain says nothing about serving")


# ------------------------------------------------------------------------------------------------ what becomes the account


class _Book:
    """What the starts brought, in order."""

    def __init__(self, plan: CommandPlan) -> None:
        self.plan = plan
        self.laps: list[Lap] = []
        self.cells: dict[str, Cell] = {}
        self.failed: dict[str, str] = {}
        self.starts: dict[str, list[Started]] = {}
        self.counts: dict[tuple[str, str], list[Started]] = {}

    def add(self, i: int, arm: CommandArm, one: Started | None) -> None:
        if one is None:
            return
        self.starts.setdefault(arm.name, []).append(one)
        for reading in one.readings:
            cell = reading.cell
            self.cells.setdefault(cell.name, cell)
            self.laps.append(Lap(cell.name, arm.name, i, reading.seconds, reading.steps))
            self.counts.setdefault((cell.name, arm.name), []).append(one)

    def account(self) -> Account:
        plan, every = self.plan, [s for starts in self.starts.values() for s in starts]
        served = any(s.served for s in every)
        reader = next((s.reader for s in every), plan.reader)
        settings = (
            ("device", plan.device),
            ("class", "server" if served else "engine"),
            ("command", " ".join(plan.argv)),
            ("reader", reader),
        )
        return Account(
            engine=f"command ({reader})",
            model=plan.model or Path(plan.argv[0]).name,
            machine=plan.machine,
            versions=(),
            settings=settings,
            arms=tuple(arm.name for arm in plan.arms),
            cells=tuple(self.cells.values()),
            slots=tuple(Slot(plan.slot or "command", a.task, (plan.engaged,), 1) for a in plan.arms if a.task) if plan.engaged else (),
            laps=tuple(self.laps),
            graphs=tuple(self._graphs(cell, arm, starts) for (cell, arm), starts in self.counts.items()),
            likeness=(),
            peak_bytes=self._peaks(),
            notes=self._notes(),
        )

    def _graphs(self, cell: str, arm: str, starts: list[Started]) -> Graphs:
        """The least share and the fewest signs of engagement of any start: one that fell back is not hidden by the others."""
        shares = [s.graphs.share for s in starts]
        known = [s for s in shares if s is not None]
        share = min(known) if known and len(known) == len(shares) else 0.0 if 0.0 in known else None
        words = ((self.plan.engaged, min(s.engaged for s in starts)),) if self.plan.engaged and arm != STOCK else ()
        if self.plan.engaged and arm == STOCK:
            words = ((self.plan.engaged, max(s.engaged for s in starts)),)
        return Graphs(cell, arm, share, words)

    def _peaks(self) -> tuple[tuple[str, int], ...]:
        """Memory of the processes: on a CPU that is the model's, on a GPU it says nothing of the card's."""
        if self.plan.device != "cpu":
            return ()
        return tuple((arm, max(s.peak_bytes for s in starts)) for arm, starts in self.starts.items())

    def _notes(self) -> tuple[str, ...]:
        counted = [s.graphs for starts in self.starts.values() for s in starts]
        off = next((f"graphs: the engine said: {c.said}" for c in counted if c.said), "")
        by = "graphs: share of steps, as the engine counts them itself" if any(c.steps for c in counted) else ""
        failed = tuple(f"{arm}: {what}" for arm, what in self.failed.items())
        return (*failed, *(note for note in (off, by) if note))
