"""What an engine is, and what it hands over: laps of stock and patched arms, what ran in graphs, how alike the outputs are.

Owns the records between an engine and the proof (`engine/proof.py`). Must not know any engine, nor what makes a proof.
"""

from __future__ import annotations

import re
from typing import Protocol

from msgspec import Struct

STOCK = "stock"  # the arm that everything is held against
AGAIN = "stock again"  # the second arm of an A/A


class Cell(Struct, frozen=True):
    """A point of the grid. `context`: tokens in the cache before a decode step, or prompt tokens of a prefill."""

    phase: str  # decode | prefill
    context: int
    batch: int

    @property
    def name(self) -> str:
        return f"{self.phase} {self.context} x {self.batch}"


class Lap(Struct, frozen=True):
    """One interleaved measurement: `seconds` of one decode step, or of one prefill, as the median over `steps` in a row."""

    cell: str
    arm: str
    round: int
    seconds: float
    steps: int = 1


class Graphs(Struct, frozen=True):
    """What ran in one cell with one arm. `share`: of kernel time inside CUDA graph nodes, 0 to 1; None where there is no GPU.

    launches  kernel (or, without a GPU, slot) name -> launches in one decode step or prefill
    seconds   the same names -> time in one step, for Amdahl
    """

    cell: str
    arm: str
    share: float | None
    launches: tuple[tuple[str, int], ...] = ()
    seconds: tuple[tuple[str, float], ...] = ()


class Likeness(Struct, frozen=True):
    """Teacher-forced logits of `arm` against those of `against`, over `tokens` positions."""

    cell: str
    arm: str
    against: str  # "stock" | "stock again" | "stock in float32"
    kl_mean: float  # nats
    kl_worst: float  # of one position
    top1: float  # share of positions with the same best token
    tokens: int
    greedy: float = 1.0  # share of greedily decoded tokens that are the same, up to the first that differs


class Planted(Struct, frozen=True):
    """How far the logits move when what the kernel in `slot` makes is damaged in a known way, in every layer. `alike.arm` has it."""

    slot: str
    task: str
    fault: str  # in words: "zeros"
    alike: Likeness


class Slot(Struct, frozen=True):
    """Where a kernel of a task was put. `expected`: its launches in one decode step (layers x uses)."""

    name: str  # attention_decode | attention_prefill | rms_norm | add_rms_norm | rotary_cache | mlp_activation | linear | moe
    task: str
    kernels: tuple[str, ...]  # names, or parts of names, of the kernels that prove it ran
    expected: int


def runs(part: str, kernel: str) -> bool:
    """Whether a kernel's name has this part, at the beginning of a word: `_kernel` is no part of `elementwise_kernel`."""
    return bool(part) and re.search(rf"(?<![A-Za-z0-9_]){re.escape(part)}", kernel) is not None


class Account(Struct, frozen=True):
    """All that an engine says of one proof. `arms`: stock first. `settings`: what makes two accounts comparable, as name and value."""

    engine: str
    model: str
    machine: str
    versions: tuple[tuple[str, str], ...]
    settings: tuple[tuple[str, str], ...]
    arms: tuple[str, ...]
    cells: tuple[Cell, ...]
    slots: tuple[Slot, ...]
    laps: tuple[Lap, ...]
    graphs: tuple[Graphs, ...]
    likeness: tuple[Likeness, ...]
    peak_bytes: tuple[tuple[str, int], ...] = ()  # arm -> peak memory
    notes: tuple[str, ...] = ()  # `ARM: what happened` of an arm that did not end well
    planted: tuple[Planted, ...] = ()  # without any, likeness shows nothing: it may be blind to the slot


class Engine(Protocol):
    @property
    def name(self) -> str: ...

    def account(self, rounds: int) -> Account:
        """Measure: stock and patched arms interleaved in random order within each of `rounds` rounds, in every cell.

        MachineError when the engine cannot run here, TaskError when a slot does not fit the model: both say what to do.
        """
