"""What a task is: its calling contract, cases, goal, limits, and what a proposal changes. Data only."""

from __future__ import annotations

from msgspec import Struct

# --------------------------------------------------------------------------------------------- the calling contract


class Arg(Struct, frozen=True):
    """One argument of a signature, in schema order."""

    name: str
    kind: str  # tensor | int | float | bool | str
    optional: bool = False
    alias: str = ""  # alias set, `a` of Tensor(a!)
    written: bool = False  # marked `!`
    default: bool | int | float | str | None = None
    has_default: bool = False


class Return(Struct, frozen=True):
    """One returned tensor. With an alias it is an argument handed back, not a new output."""

    name: str
    alias: str = ""


class Signature(Struct, frozen=True):
    name: str
    args: tuple[Arg, ...]
    returns: tuple[Return, ...]
    text: str

    @property
    def tensors(self) -> tuple[Arg, ...]:
        return tuple(a for a in self.args if a.kind == "tensor")

    @property
    def written(self) -> tuple[Arg, ...]:
        """Arguments that the kernel writes (`!`), in schema order."""
        return tuple(a for a in self.args if a.written)

    @property
    def outputs(self) -> tuple[Return, ...]:
        """Fresh outputs: returned tensors that are not an argument handed back."""
        return tuple(r for r in self.returns if not r.alias)

    @property
    def results(self) -> tuple[str, ...]:
        """Names of everything that is compared: written arguments, then outputs."""
        return tuple(a.name for a in self.written) + tuple(r.name for r in self.outputs)


# --------------------------------------------------------------------------------------------- the task

GPU_LANGUAGES = ("triton", "cuda", "torch", "cute")  # what the GPU judge judges; all others are the CPU judge's


class Case(Struct, frozen=True):
    """Values for every axis; `weight` is normalised over the timed cases."""

    name: str
    axes: tuple[tuple[str, int], ...]
    weight: float = 1.0
    use: str = "both"  # time | correct | both

    @property
    def timed(self) -> bool:
        return self.use in ("time", "both")

    def axis(self, name: str) -> int:
        return dict(self.axes)[name]


class Argument(Struct, frozen=True):
    """`[arguments] NAME = {...}`: what the human says about one argument."""

    name: str
    role: str = "input"  # input | weight | scratch | index | meta
    refresh: str = "element"  # element: new contents mix two draws per element; whole: a draw is used as it is
    dtype: str = ""  # a name of `dtypes`; empty: as inputs() and reference() return it


class Goal(Struct, frozen=True):
    speedup: float | None = None  # e.g. 1.3: at least 1.3x
    over: str = "baseline"  # baseline: the fastest passing baseline; start: the kernel the run began with
    limit: float | None = None  # e.g. 0.9: at least 90 % of the physical limit


class Budget(Struct, frozen=True):
    experiments: int | None = 200
    hours: float | None = None
    dollars: float | None = None
    dry: int | None = None  # stop after so many experiments in a row without a keep


FLOORS = {"fp64": ("fp32", 24), "fp32": ("tf32", 11), "tf32": ("bf16", 8), "fp16": ("bf16", 8), "bf16": ("fp8", 4)}
"""`[rules] precision_floor`, and what is just below each: its name, and the bits of its significand, the leading one counted."""


class Rules(Struct, frozen=True):
    """`[rules]`: told to the proposer, and held to by the judge."""

    cuda_graphs: str = "allowed"
    library_kernels: str = "allowed"  # allowed | forbidden | the largest share of GPU time they may take, e.g. "0.2"
    languages: tuple[str, ...] = ()  # GPU: kernels of no other language or origin may be launched, libraries aside; (): any share is fine
    min_axis: tuple[tuple[str, int], ...] = ()  # a case has to reach so far
    precision_floor: str = ""  # a name of FLOORS; "": the error budget alone
    no_state: bool = False  # nothing that a call could write and a later one read
    prepare: str = ""  # "" | forbidden: no `prepare` beside the entry | step: see Task.prepare


class Limit(Struct, frozen=True):
    """Least work a call must do, as bounded expressions over the axes."""

    bytes: str = ""
    flops: str = ""


class Build(Struct, frozen=True):
    flags: tuple[str, ...] = ("-O2",)
    libs: tuple[str, ...] = ()  # e.g. "-lm", after the sources
    sources: tuple[str, ...] = ()  # further sources, relative to root
    include: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()  # globs, relative to root: files the compiler may read


class Tolerance(Struct, frozen=True):
    """How a result is compared; see docs/verdict.md. `reduction` is an expression over the axes (L)."""

    reduction: str = ""
    scale: float = 1.0  # widens the whole error budget; 1 is the default and what should be used


class Engine(Struct, frozen=True):
    """`[engine]`: the real engine that a keep is proven in. Cells are (phase, context, batch); docs/e2e.md says what the rest means."""

    kind: str  # transformers | command
    model: str
    slot: str  # "" for a command
    device: str
    dtype: str
    cells: tuple[tuple[str, int, int], ...]
    rounds: int
    worst_cell: float  # share of time that a cell may lose
    memory: float  # share of stock's peak that may be added
    unshown: tuple[str, ...] = ()  # accepted without evidence
    every: int = 0  # prove every so many keeps of a run; 0: only when asked
    only: str = ""
    python: str = ""  # interpreter with torch and transformers, "" for this one
    argv: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    server: tuple[str, ...] = ()
    ready: str = "/health"
    patched_args: tuple[str, ...] = ()
    patched_env: tuple[tuple[str, str], ...] = ()
    reader: str = ""
    engaged: str = ""
    limit_seconds: float = 1800.0
    attention: str = "sdpa"  # of the library, in stock and beside the kernel
    compile: str = ""  # "" | default | max-autotune: of every arm
    steps: int = 20
    tokens: int = 32  # teacher-forced positions
    float32: bool = True  # the null has a run in float32
    weights: str = "sensitive"  # of a model without a checkpoint: sensitive | library
    opponents: tuple[str, ...] = ()  # further stock configurations that must not be faster: "sdpa_gqa max-autotune"
    rows: int = 0  # of the slot linear: of input at most, more are stock's; 0: any


class Dispatch(Struct, frozen=True):
    """`[dispatch]`: which axes a router sees when a call comes, which it does not, and where the champion is held against its fallbacks.

    `visible` and `hidden` both empty: an axis that shapes of arguments tell is visible. Values of an axis in `grid` are numbers, or an
    expression over other axes. `fallbacks`: baselines, what is stock first; empty: all.
    """

    visible: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    grid: tuple[tuple[str, tuple[int, ...] | str], ...] = ()
    fallbacks: tuple[str, ...] = ()
    rounds: int = 6


class Baseline(Struct, frozen=True):
    name: str
    path: str  # relative to the task folder
    language: str  # c | python (CPU); torch | cuda (GPU: `.py`, `.cu`)


class Task(Struct, frozen=True):
    """A task as read and validated. Paths are relative to `root`, which is relative to the repository."""

    name: str
    title: str
    folder: str  # absolute path of the task folder
    root: str  # absolute path that `editable`, `entry` and `[build]` are relative to
    signature: Signature
    languages: tuple[str, ...]
    entry_path: str
    entry_symbol: str
    editable: tuple[str, ...]  # globs relative to root
    axes: tuple[str, ...]
    cases: tuple[Case, ...]
    arguments: tuple[Argument, ...]
    goal: Goal
    budget: Budget
    rules: Rules
    limit: Limit
    build: Build
    tolerance: Tolerance
    baselines: tuple[Baseline, ...]
    tunables: str  # path of tunables.toml relative to root, or ""
    threads: int
    oracle: str  # reference | frozen  ("frozen": same as before, not proven right)
    hash: str  # task.toml less budget, reference, baselines
    prepare: str = ""  # "step": a `prepare` beside the entry runs before each call, inside the clock (GPU judge only)
    engine: Engine | None = None
    dispatch: Dispatch = Dispatch()

    @property
    def timed(self) -> tuple[Case, ...]:
        return tuple(c for c in self.cases if c.timed)

    @property
    def gpu(self) -> bool:
        """Whether this task is for the GPU judge."""
        return any(name in GPU_LANGUAGES for name in self.languages)

    def weights(self) -> tuple[float, ...]:
        total = sum(c.weight for c in self.timed)
        return tuple(c.weight / total for c in self.timed)

    def argument(self, name: str) -> Argument:
        return next((a for a in self.arguments if a.name == name), Argument(name))


# --------------------------------------------------------------------------------------------- candidates


class File(Struct, frozen=True):
    path: str  # relative to the task's root, forward slashes
    data: bytes
    executable: bool = False
    link: bool = False  # a symbolic link, and `data` is where it points; never part of a champion


class Patch(Struct, frozen=True):
    """A unified diff, paths relative to the task folder, applied to the champion."""

    diff: str


class Files(Struct, frozen=True):
    """Whole files that replace (data) or remove (None) files of the champion; paths relative to the task folder."""

    files: tuple[tuple[str, bytes | None], ...]


class Tunables(Struct, frozen=True):
    """New values for declared tunables."""

    values: tuple[tuple[str, int | float | str | bool], ...]


class Proposal(Struct, frozen=True):
    title: str
    proposer: str  # deck | search | hand | ...
    change: Patch | Files | Tunables
    source: str = ""  # e.g. deck/006-remember.patch
    idea: int | None = None
    dollars: float = 0.0  # what making it cost, as far as is known; turns that led to nothing included
    tokens: int = 0
    edit: str = ""  # artifact of the turn that it comes from, see TurnNote.edit


class Candidate(Struct, frozen=True):
    """A frozen set of editable files and the commit that holds it."""

    files: tuple[File, ...]
    tree: str  # sha256 over paths and contents of the editable files
    commit: str  # git commit, "" when not committed
    n: int = 0  # experiment number, 0 for what is not one
