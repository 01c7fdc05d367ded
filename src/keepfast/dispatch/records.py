"""What a certificate is made of: where was measured, what was found, what a router may do with it. Data only.

Ratios are natural logarithms of time(champion) / time(fallback): negative is faster.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from msgspec import Struct

Cell = tuple[int, ...]  # a value of every visible axis, in their order
Axes = tuple[tuple[str, int], ...]
SHEET = "keepfast.sheet/1"
ROUTES = "keepfast.routes/1"


class Space(Struct, frozen=True):
    """Axes with the values they are first measured at. `order`: all axes as the task names them; `derived`: (axis, expression)."""

    order: tuple[str, ...]
    visible: tuple[tuple[str, tuple[int, ...]], ...]
    hidden: tuple[tuple[str, tuple[int, ...]], ...]
    derived: tuple[tuple[str, str], ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.visible)

    def cells(self) -> tuple[Cell, ...]:
        return tuple(itertools.product(*(values for _, values in self.visible)))

    def points(self, cell: Cell) -> Iterator[Axes]:
        """The points of a cell: all combinations of hidden values, with every axis in the task's order."""
        from keepfast import expr

        for hidden in itertools.product(*(values for _, values in self.hidden)):
            known = dict(zip(self.names, cell, strict=True)) | dict(zip((n for n, _ in self.hidden), hidden, strict=True))
            known |= {axis: int(expr.parse(text, tuple(known)).value(known)) for axis, text in self.derived}
            yield tuple((axis, known[axis]) for axis in self.order)


# --------------------------------------------------------------------------------------------- what was measured


class Shot(Struct, frozen=True):
    """The champion against one fallback at one point: mean of the log-ratios of `rounds` fresh rounds, and their SD."""

    fallback: str
    d: float
    sd: float
    rounds: int
    champion_ns: float
    fallback_ns: float


class Finding(Struct, frozen=True):
    """One point. `state`: measured; wrong (the champion is); no-stock (stock does not pass there); void (the machine could not)."""

    point: Axes
    state: str
    detail: str = ""
    shots: tuple[Shot, ...] = ()
    absent: tuple[str, ...] = ()  # fallbacks other than stock that do not pass there: "NAME: why"


class Sheet(Struct, frozen=True):
    """Findings so far. They count for the same key only: task, champion, machine, fallbacks, rounds."""

    key: str
    findings: tuple[Finding, ...] = ()
    schema: str = SHEET


# --------------------------------------------------------------------------------------------- the calling contract, as it was seen


class Dim(Struct, frozen=True):
    """What one dimension of a tensor is, over everything that was measured.

    kind   axis: `times` * axis // `over`, rounded up; product: axis * other; free: anything from `low` to `high`
    """

    kind: str
    low: int
    high: int
    axis: str = ""
    other: str = ""
    times: int = 1
    over: int = 1


class Argument(Struct, frozen=True):
    """An argument or a fresh output. `values`: of a scalar, those seen; none for a float, which may be any. `present`: not None."""

    name: str
    kind: str  # tensor | int | float | bool | str
    dtype: str = ""
    dims: tuple[Dim, ...] = ()
    values: tuple[int | bool | str, ...] = ()
    written: bool = False
    present: bool = True
    contiguous: bool = True


class Seen(Struct, frozen=True):
    """One case as the judge laid it out. Tensors: (name, dtype, shape, contiguous); a name that is missing was None."""

    axes: Axes
    tensors: tuple[tuple[str, str, tuple[int, ...], bool], ...]
    scalars: tuple[tuple[str, int | float | bool | str], ...] = ()


# --------------------------------------------------------------------------------------------- what a router may do


class Span(Struct, frozen=True):
    """Values low, low + multiple, ... high of one visible axis. `multiple`: what all measured values in it are multiples of, at most 16."""

    axis: str
    low: int
    high: int
    multiple: int = 1

    def holds(self, value: int) -> bool:
        return self.low <= value <= self.high and value % self.multiple == 0


class Worst(Struct, frozen=True):
    """The comparison with the least lower bound of the gain. `high`: one-sided upper bound of `d` at the certificate's level."""

    at: Axes
    fallback: str
    d: float
    high: float
    sd: float
    rounds: int


class Row(Struct, frozen=True):
    """One measured cell, with the reason for its route."""

    cell: Cell
    custom: bool
    why: str
    worst: Worst | None = None


class Region(Struct, frozen=True):
    """A box of the visible axes that goes to the custom kernel; `worst` over all that was measured in it."""

    spans: tuple[Span, ...]
    cells: int
    worst: Worst


class Terms(Struct, frozen=True):
    """The level of a certificate. At most `most` cells are ever measured; each is tested at alpha / most."""

    alpha: float
    most: int
    margin: float
    sigma: float

    @property
    def each(self) -> float:
        return self.alpha / self.most


class Table(Struct, frozen=True):
    """The routing table: what is not in a region goes to stock."""

    task: str
    task_hash: str
    signature: str
    run: str
    champion: int  # experiment number
    tree: str
    commit: str
    device: str  # cuda | cpu
    machine: str  # hash
    card: str  # name of the card, or of the CPU
    versions: tuple[tuple[str, str], ...]
    walls: str
    stock: str
    fallbacks: tuple[str, ...]
    space: Space
    terms: Terms
    rounds: int
    when: float  # unix time
    complete: bool
    arguments: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    rows: tuple[Row, ...]
    regions: tuple[Region, ...]
    certified: bool = True
    schema: str = ROUTES
