"""The engine `transformers`, seen from the host: what is asked of it, the process that does it, and the account that comes back.

Owns `Plan`, the record between host and process. Must not know torch: `torch_main` is run by an interpreter that has it.
"""

from __future__ import annotations

import hashlib
import math
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from keepfast.engine import shelf, slots
from keepfast.engine.base import STOCK, Account, Cell
from keepfast.errors import KeepfastError, MachineError, TaskError, UsageError, nearest
from keepfast.model import Task
from keepfast.task import tunables
from keepfast.task.engine import ATTENTION, COMPILE, WEIGHTS

PROCESS = "keepfast.engine.torch_main"
DEVICES = ("cuda", "cpu")
DTYPES = ("bfloat16", "float16", "float32")
PHASES = ("decode", "prefill", "both")
TAIL = 12  # lines of the process that are kept for an error
ARM = "keepfast-arm: "
KILLED = -9  # by whoever guards the memory of the machine: no verdict on a kernel
INSTALL = "pip install torch transformers, or name the interpreter that has them"


class Fill(Struct, frozen=True):
    """A task's kernel in a slot. `entry_path` is absolute.

    only       glob over names of modules, for `linear`: "*.mlp.down_proj"
    rows       for `linear`: of the input at most, more are multiplied by the model's own code; 0: any
    phase      decode | prefill | both: elsewhere the model's own code runs
    kernels    parts of names of the kernels that prove it ran; empty: the Triton functions of the entry's file
    arguments  name and element type of arguments, where the task says it
    tunables   the text of keepfast_tunables.py, "" for none
    path       further folders that the entry imports from
    """

    slot: str
    entry_path: str
    entry_symbol: str
    signature: str
    task: str
    only: str = ""
    phase: str = "both"
    kernels: tuple[str, ...] = ()
    arguments: tuple[tuple[str, str], ...] = ()
    tunables: str = ""
    path: tuple[str, ...] = ()
    rows: int = 0


class Arm(Struct, frozen=True):
    """`attention` and `compile` as in `Plan`; "" and None: as stock has them."""

    name: str
    fills: tuple[Fill, ...] = ()
    attention: str = ""
    compile: str | None = None


class Plan(Struct, frozen=True):
    """One proof.

    model      a folder with a checkpoint; a name of engine/models.toml; or JSON: {"architecture": "LlamaForCausalLM", "layers": 2, ...}, or
               {"base": "llama-3.1-8b", "layers": 16}. The last two have random weights from `seed`
    attention  of the library: sdpa, eager, flex_attention ..., sdpa_gqa (keys not repeated), sdpa_gqa_cudnn (by cuDNN or not at all),
               sdpa_gqa_exact (no mask: right for one length)
    compile    None, "default" or "max-autotune", both inside our own graph
    steps      measured in a row in each round
    tokens     teacher-forced positions of each sequence
    float32    whether the null has a run in float32, which takes twice the weights' memory for a while
    threads    of torch on a CPU, 0: as many as it likes
    skip       leave an arm out that cannot run, and say so in the notes, instead of failing
    fill       prefill | random: what the cache holds before a decode step; "": prefill for a checkpoint and for short contexts
    weights    of random ones: "sensitive", scaled so that every slot moves the logits; "library": as the library draws them
    """

    model: str
    cells: tuple[Cell, ...]
    arms: tuple[Arm, ...] = (Arm(STOCK),)
    dtype: str = "bfloat16"
    device: str = "cuda"
    rounds: int = 8
    steps: int = 20
    tokens: int = 32
    attention: str = "sdpa"
    compile: str | None = None
    float32: bool = True
    fill: str = ""
    weights: str = "sensitive"
    seed: int = 1
    threads: int = 0
    skip: bool = False

    def __post_init__(self) -> None:
        _one_of("device", self.device, DEVICES)
        _one_of("dtype", self.dtype, DTYPES)
        _one_of("weights", self.weights, WEIGHTS)
        _one_of("fill", self.fill or "random", ("prefill", "random"))
        for arm in self.arms:
            _one_of("attention", arm.attention or self.attention, ATTENTION)
            _one_of("compile", arm.compile or self.compile or COMPILE[0], COMPILE)
            for fill in arm.fills:
                slots.kind(fill.slot)
                _one_of("phase", fill.phase, PHASES)
        names = [arm.name for arm in self.arms]
        if not names or names[0] != STOCK or len(set(names)) != len(names) or self.arms[0].fills:
            step = f"The first is `{STOCK}` and fills nothing, names are unique"
            raise UsageError(f"arms are {', '.join(names) or 'none'}", where="engine", next_step=step)
        if not self.cells or min(self.rounds, self.steps, self.tokens) < 1:
            raise UsageError("cells, rounds, steps and tokens: at least one of each", where="engine")
        for cell in self.cells:
            _one_of("phase of a cell", cell.phase, PHASES[:2])
            if cell.context < 4 or cell.batch < 1:
                raise UsageError(f"{cell.name}: context at least 4, batch at least 1", where="engine")


class Failure(Struct, frozen=True):
    """What the process says instead of an account. `kind`: task | machine."""

    kind: str
    what: str
    where: str
    next_step: str


class Answer(Struct, frozen=True):
    account: Account | None = None
    failure: Failure | None = None


def fill(task: Task, slot: str, *, tree: Path | None = None, only: str = "", rows: int = 0) -> Fill:
    """The kernel of a task in a slot. `tree`: where the champion's files lie, the task's root when absent."""
    root = tree if tree is not None else Path(task.root)
    entry = root / task.entry_path
    if entry.suffix != ".py":
        what = f"its entry {task.entry_path} is no Python file"
        raise TaskError(what, where=f"slot {slot}, task {task.name}", next_step="A slot calls Triton, CuTe DSL or torch: add a `.py` entry")
    space = root / task.tunables if task.tunables else None
    text = tunables.python(tunables.parse(space.read_text(encoding="utf-8"))) if space is not None and space.is_file() else ""
    types = tuple((a.name, a.dtype) for a in task.arguments if a.dtype)
    return Fill(
        slot=slot,
        entry_path=str(entry.absolute()),
        entry_symbol=task.entry_symbol,
        signature=task.signature.text,
        task=task.name,
        only=only,
        arguments=types,
        tunables=text,
        rows=rows,
        path=(str(root.absolute()), *(str((root / p).absolute()) for p in task.build.include)),
    )


def named_models() -> dict[str, dict[str, Any]]:
    """engine/models.toml."""
    return tomllib.loads((Path(__file__).parent / "models.toml").read_text(encoding="utf-8"))


def described(model: str) -> dict[str, Any] | Path:
    """What `Plan.model` means: a table with `architecture`, or the folder of a checkpoint. TaskError when it is neither."""
    if model.lstrip().startswith("{"):
        try:
            table: dict[str, Any] = msgspec.json.decode(model, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise TaskError(f"is not JSON: {error}", where="model", next_step='{"architecture": "LlamaForCausalLM", "layers": 2}') from None
        return _based(table)
    if model in named_models():
        return _based({"base": model})
    if (Path(model) / "config.json").is_file():
        return Path(model).resolve()
    known = tuple(named_models())
    step = f"A folder with config.json, a table in JSON, or one of {', '.join(known)}"
    raise TaskError(f"`{model}` is no model.{nearest(model, known)}", where="model", next_step=step)


class TransformersEngine:
    """Runs the plan in a process of its own. `python`: an interpreter with torch and transformers; `said` gets each line of progress.
    `keep`: a folder for the cells of a proof that does not come to its end, so that the next one goes on there."""

    name = "transformers"

    def __init__(
        self,
        plan: Plan,
        *,
        python: str = sys.executable,
        limit_s: float = 3600.0,
        said: Callable[[str], None] | None = None,
        keep: Path | None = None,
    ) -> None:
        self.plan, self.python, self.limit_s, self.said, self.keep = plan, python, limit_s, said, keep

    def account(self, rounds: int) -> Account:
        """Stock and other arms, interleaved, in every cell. MachineError or TaskError when there is no account. A process that ends while
        the code of an arm with kernels runs is that arm's end, and the account says so."""
        described(self.plan.model)
        plan = replace(self.plan, rounds=rounds)
        if self.keep is None:
            return self._account(plan)
        shelf.swept(self.keep)
        kept = self.keep / _same(plan)
        found = self._account(plan, str(kept))
        shutil.rmtree(kept, ignore_errors=True)  # it came to its end
        return found

    def _account(self, plan: Plan, *kept: str) -> Account:
        """`kept`: the folder for the cells of this plan, where there is one."""
        with tempfile.TemporaryDirectory(prefix="keepfast-engine-") as folder:
            asked, told = Path(folder) / "plan.json", Path(folder) / "answer.json"
            asked.write_bytes(msgspec.json.encode(plan))
            code, lines = self._run([self.python, "-P", "-m", PROCESS, str(asked), str(told), *kept], folder)
            arm = next((line.removeprefix(ARM) for line in reversed(lines) if line.startswith(ARM)), STOCK)
            tail = "\n".join([line for line in lines if not line.startswith(ARM)][-TAIL:])
            if not told.is_file() and code != KILLED and any(a.name == arm and a.fills for a in self.plan.arms):
                return _ended(self.plan, arm, code, tail)
            return _account(told, code, tail)

    def _run(self, command: list[str], folder: str) -> tuple[int, list[str]]:
        """Exit status, and the lines that it wrote. MachineError when it cannot be started or takes too long."""
        log = Path(folder) / "log.txt"
        try:
            with (
                log.open("wb") as out,
                subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT) as process,
            ):
                try:
                    code = self._watched(process, log)
                finally:
                    process.kill()  # an interrupt at a terminal reaches it as well, any other end of ours does not
        except OSError as error:
            raise MachineError(f"{self.python} does not start: {error}", where="engine transformers", next_step=INSTALL) from None
        return code, log.read_text(encoding="utf-8", errors="replace").splitlines()

    def _watched(self, process: subprocess.Popen[bytes], log: Path) -> int:
        """Until it ends, handing on what it says."""
        ticks = math.ceil(self.limit_s / 0.5)
        with log.open(encoding="utf-8", errors="replace") as lines:
            for _ in range(ticks):
                try:
                    process.wait(0.5)
                except subprocess.TimeoutExpired:
                    self._hand(lines.read())
                    continue
                self._hand(lines.read())
                return process.returncode
        process.kill()
        told = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.startswith(("keepfast: ", ARM))]
        last = " / ".join(line.partition(": ")[2].strip() for line in told[-4:])
        step = "Raise limit_seconds, or ask for fewer cells, rounds or layers; each cell can be asked for alone"
        raise MachineError(f"no account after {self.limit_s:.0f} s; it was at: {last}", where="engine transformers", next_step=step)

    def _hand(self, text: str) -> None:
        for line in text.splitlines() if self.said is not None else ():
            if self.said is not None and line.startswith("keepfast: "):
                self.said(line.removeprefix("keepfast: "))


def _same(plan: Plan) -> str:
    """Equal for plans that differ in their cells at most: kernels by contents, for each proof lays them out in another folder."""
    arms = tuple(replace(arm, fills=tuple(_placeless(fill) for fill in arm.fills)) for arm in plan.arms)
    return hashlib.sha256(msgspec.json.encode(replace(plan, arms=arms, cells=(Cell("decode", 4, 1),)))).hexdigest()[:32]


def _placeless(fill: Fill) -> Fill:
    entry, root = Path(fill.entry_path), Path(fill.path[0]) if fill.path else Path(fill.entry_path).parent
    return replace(fill, entry_path=str(entry.relative_to(root) if entry.is_relative_to(root) else entry), path=tuple(_contents(root)))


def _contents(root: Path) -> Iterator[str]:
    for path in sorted(root.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield f"{path.relative_to(root).as_posix()} {hashlib.sha256(path.read_bytes()).hexdigest()}"


def _ended(plan: Plan, arm: str, code: int, tail: str) -> Account:
    """Nothing was measured, because the kernel of this arm took the process with it."""
    how = f"signal {-code}" if code < 0 else f"status {code}"
    last = " / ".join(line.removeprefix("keepfast: ").strip() for line in tail.splitlines()[-4:])
    return Account(
        engine="transformers", model=plan.model, machine="", versions=(), settings=(("device", plan.device), ("dtype", plan.dtype)),
        arms=tuple(a.name for a in plan.arms), cells=plan.cells, slots=(), laps=(), graphs=(), likeness=(),
        notes=(f"{arm}: the process that ran it ended with {how} while its code ran; its last lines: {last}",),
    )  # fmt: skip


def _account(told: Path, code: int, tail: str) -> Account:
    if not told.is_file():
        raise MachineError(f"ended with status {code} and no account:\n{tail}", where="engine transformers", next_step=INSTALL)
    answer = msgspec.json.decode(told.read_bytes(), type=Answer)
    if answer.account is not None:
        return answer.account
    said = answer.failure or Failure("machine", "neither an account nor a reason", "engine transformers", INSTALL)
    kind: type[KeepfastError] = TaskError if said.kind == "task" else MachineError
    raise kind(said.what, where=said.where, next_step=said.next_step)


def _based(table: dict[str, Any]) -> dict[str, Any]:
    """The table with what its `base` has, and with `architecture`."""
    known = named_models()
    seen = dict(table)
    while "base" in seen:
        base = seen.pop("base")
        if base not in known:
            raise TaskError(f"no base is called `{base}`.{nearest(str(base), tuple(known))}", where="model", next_step=", ".join(known))
        seen = known[base] | seen
    if not isinstance(seen.get("architecture"), str):
        raise TaskError("has no `architecture`", where="model", next_step='Name a class: "architecture": "LlamaForCausalLM"')
    return seen


def _one_of(what: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise UsageError(f"there is no {what} `{value}`.{nearest(value, known)}", where="engine", next_step=f"One of: {', '.join(known)}")
