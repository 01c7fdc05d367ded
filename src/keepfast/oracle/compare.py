"""Is a result right? The error budget of docs/verdict.md on torch tensors, the same numbers as the CPU judge's.

Owns: slices, budgets, codes, the sentence that names the first wrong element. Must not know layouts, memory or reference.py.
Large results are worked on in blocks of rows, so that float64 copies stay small.
"""

from __future__ import annotations

import math

import torch
from msgspec import Struct

from keepfast.expr import parse
from keepfast.model import Case, Task
from keepfast.oracle import codes, tensors

FLOOR_EPS = 4.0  # a budget is never below this many eps of the slice's RMS, times max(1, sqrt(L) / 8) for the RMS
CAP_EPS = 8.0  # nor above this many eps * sqrt(L)
OWN_ERROR = 2.0  # times the reference's own error at working precision
WORST = 10.0  # worst element over the budget, times max(1, sqrt(L) / 8)
TINY_SLICE = 1e-6  # an (almost) empty slice borrows this share of the RMS of the whole tensor

SHORT = 8  # elements: the error of so few says nothing about the precision that a result has
COARSE_EPS = 2.0**-20  # half precision and less: sums are kept wider, so what a result may be off by does not grow with their length
COARSE_FLOOR = 2.0


class Limits(Struct, frozen=True):
    """L, and what widens the whole budget."""

    length: float
    scale: float = 1.0

    @property
    def grown(self) -> float:
        return max(1.0, math.sqrt(self.length) / 8.0)


class Judged(Struct, frozen=True):
    """One result: what is wrong with it or "", the largest budgets of its slices, the largest errors found; relative to a slice's RMS."""

    name: str
    wrong: str = ""
    rms: float = 0.0
    worst: float = 0.0
    found_rms: float = 0.0
    found_worst: float = 0.0


def limits_of(task: Task, case: Case) -> Limits:
    """L is `[tolerance] reduction`, else the largest axis."""
    axes = dict(case.axes)
    if task.tolerance.reduction:
        length = max(1.0, float(parse(task.tolerance.reduction, list(axes)).value(axes)))
    else:
        length = float(max(axes.values(), default=1))
    return Limits(length, task.tolerance.scale)


def judge(name: str, got: torch.Tensor, working: torch.Tensor, exact: torch.Tensor, limits: Limits) -> Judged:
    """Compare one result with the oracle. Shapes and dtypes are equal by construction of the layout."""
    if got.numel() == 0:
        return Judged(name)
    if working.dtype.is_floating_point and not tensors.small(working.dtype):
        return _Rows(got, working, exact, limits).judged(name)
    detail = codes.wrong(name, got, working)
    if detail and exact.shape == working.shape:  # what float64 says is right as well
        nearest = exact.to(working.dtype) if tensors.small(working.dtype) and exact.dtype == torch.float64 else exact
        if nearest.dtype == working.dtype and not codes.wrong(name, got, nearest):
            detail = ""
    rms, worst = codes.budget(working)
    return Judged(name, detail, rms, worst)


def slices(tensor: torch.Tensor) -> torch.Tensor:
    """View or copy as (slices, elements): the last axis is a slice, together with those before it while it is very short."""
    return tensor.reshape(-1, max(1, width(tuple(tensor.shape))))


def width(shape: tuple[int, ...]) -> int:
    """Elements of a slice of a tensor of this shape."""
    found = shape[-1] if shape else 1
    for size in reversed(shape[:-1]):
        if found >= SHORT:
            break
        found *= size
    return found


def _rms(rows: torch.Tensor) -> torch.Tensor:
    return rows.square().mean(dim=1).sqrt()


class _Block(Struct, frozen=True):
    """Some rows, judged: one number a row, and the absolute error of every element."""

    bad: torch.Tensor
    allowed: torch.Tensor
    worst: torch.Tensor
    size: torch.Tensor
    error: torch.Tensor


class _Rows:
    """A floating result as rows, against what the reference says at working precision and in float64."""

    def __init__(self, got: torch.Tensor, working: torch.Tensor, exact: torch.Tensor, limits: Limits) -> None:
        self.shape, self.limits = got.shape, limits
        self.got, self.working, self.exact = slices(got), slices(working), slices(exact)
        self.height, self.width = self.got.shape
        self.eps = tensors.eps_of(working.dtype)
        squares = sum(float(_bounded(self.exact[rows]).square().sum()) for rows in self._blocks())
        self.tiny = max(TINY_SLICE * math.sqrt(squares / got.numel()), 1e-300)

    def _blocks(self) -> list[slice]:
        return list(tensors.blocks(self.height, self.width))

    def judged(self, name: str) -> Judged:
        bad, top, most = [], [], [0.0] * 4
        for rows in self._blocks():
            block = self._block(rows)
            bad.append(block.bad)
            top.append(block.error.amax(dim=1))
            per_row = (block.allowed, block.worst, _rms(block.error) / block.size, top[-1] / block.size)
            most = [max(m, float(values.max())) for m, values in zip(most, per_row, strict=True)]
        wrong = torch.cat(bad)
        if not bool(wrong.any()):
            return Judged(name, "", *most)
        return Judged(name, self._detail(name, int(wrong.int().argmax()), torch.cat(top)), *most)

    def _block(self, rows: slice) -> _Block:
        reference, rounded = self.exact[rows].double(), self.working[rows].double()
        size = _rms(_bounded(reference)).clamp(min=self.tiny)
        infinite = torch.isinf(reference)
        apart = torch.where(infinite & (rounded == reference), 0.0, rounded - reference)
        base, coarse = OWN_ERROR * _rms(apart) / size, self.eps > COARSE_EPS
        floor, grown = (COARSE_FLOOR, 1.0) if coarse else (FLOOR_EPS, self.limits.grown)
        base = base.clamp(floor * self.eps, max(floor, CAP_EPS * math.sqrt(self.limits.length)) * self.eps)
        allowed = base.clamp(min=floor * self.eps * grown) * self.limits.scale
        worst = (WORST * grown * base * self.limits.scale).unsqueeze(1).expand_as(reference)
        if coarse:  # the rounding of a large element is as large as itself times eps, whatever its row is like
            worst = worst + self.eps * self.limits.scale * _bounded(reference).abs() / size.unsqueeze(1)
        error = self._error(rows, reference, infinite)
        fine = (_rms(error) <= allowed * size) & (error <= worst * size.unsqueeze(1)).all(dim=1)
        return _Block(~fine, allowed, worst.amax(dim=1), size, error)

    def _error(self, rows: slice, reference: torch.Tensor, infinite: torch.Tensor) -> torch.Tensor:
        """Absolute errors. NaN is as wrong as can be, whatever the reference says; an infinity must be the reference's."""
        got = self.got[rows].double()
        error = (got - reference).abs()
        error = torch.where(infinite, torch.where(got == reference, 0.0, torch.inf), error)
        return torch.where(error.isnan(), torch.inf, error)

    def _detail(self, name: str, row: int, top: torch.Tensor) -> str:
        """The worst element of the first wrong row."""
        error = self._block(slice(row, row + 1)).error[0]
        column = int(error.argmax())
        index = tensors.unravel(row * self.width + column, self.shape)
        value, wanted = float(self.got[row, column]), float(self.exact[row, column])
        return f"{name}{list(index)}: got {value:.7g}, expected {wanted:.7g}{self._pattern(0.5 * float(error[column]), top)}"

    def _pattern(self, least: float, top: torch.Tensor) -> str:
        """What the places with large errors have in common, in a few words; empty when nothing stands out."""
        hit = torch.zeros(self.width, dtype=torch.bool, device=top.device)
        for rows in self._blocks():
            hit |= (self._block(rows).error >= least).any(dim=0)
        columns, lines = (torch.nonzero(flags).flatten() for flags in (hit, top >= least))
        height, width, most, many = self.height, self.width, len(columns), len(lines)
        if 0 < most <= max(1, width // 4) and width > 1 and int(columns[-1]) == width - 1 and most == width - int(columns[0]):
            return f" (only the last {most} column{'s' if most > 1 else ''})"
        if 0 < many < height and many == height - int(lines[0]):
            return f" (only from row {int(lines[0])} on)"
        return f" ({many} of {height} rows)" if many < height else ""


def _bounded(reference: torch.Tensor) -> torch.Tensor:
    """In float64, with zeros for what is not finite: one infinity must not excuse its whole row."""
    return torch.nan_to_num(reference.double(), nan=0.0, posinf=0.0, neginf=0.0)
