"""Wrong answers that a lazy or tricky kernel could give, made from right ones. Must not know how answers are judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from msgspec import Struct

from keepfast.gpu.layout import Layout
from keepfast.model import Case, Task
from keepfast.model.task import FLOORS
from keepfast.oracle import tensors
from keepfast.oracle.reference import Results, Values

CANCELLED = 1e-12  # of the largest value: what is left of an input that cancels out
TILE = 8  # the last tile is this part of an axis
PRECISE = ("float32", "float64")  # types in which half precision and one in a thousand show
HALF = 11  # bits of a half-precision significand, the leading one counted
FINE = ("half precision", "off by one in a thousand", "computed in")  # wrong by little: what a task's own compare() may mean to let pass
Change = Callable[[torch.Tensor], "torch.Tensor | None"]


class Draw(Struct, frozen=True):
    """One drawn call: its arguments and what the reference says, at working precision and in float64."""

    case: Case
    layout: Layout
    values: Values
    working: Results
    exact: Results


def mutants(task: Task, one: Draw, other: Draw) -> Iterator[tuple[str, Results]]:
    """Wrong answers for draw `one`; each changes one result and leaves the others right. What comes out right again is no mutant."""
    names = list(one.working)
    for name in names:
        right = one.working[name]
        for label, change in _changes(task, one, other, name):
            wrong = _changed(change, right)
            if wrong is not None:
                yield (f"{label} ({name})" if len(names) > 1 else label), one.working | {name: wrong}
    if len(names) > 1:
        yield from _swapped(one, names[0], names[1])


def _swapped(one: Draw, first: str, second: str) -> Iterator[tuple[str, Results]]:
    a, b = one.working[first], one.working[second]
    if a.shape == b.shape and a.dtype == b.dtype and not tensors.equal(a, b):
        yield "swapped outputs", one.working | {first: b, second: a}


def _changed(change: Change, right: torch.Tensor) -> torch.Tensor | None:
    """The wrong answer in the type of the right one; None when the change does not apply, or changes nothing."""
    found = change(right)
    if found is None or found.shape != right.shape or tensors.packed(found.dtype) != tensors.packed(right.dtype):
        return None
    wrong = found.to(right.dtype) if found.dtype != right.dtype else found
    return None if tensors.equal(wrong, right) else wrong


def _changes(task: Task, one: Draw, other: Draw, name: str) -> Iterator[tuple[str, Change]]:
    yield "zeros", _zeros
    yield "constant", _mean
    yield "stale output", lambda a: other.working[name]
    yield "first row only", lambda a: _cut(a, slice(1, None), 0)
    yield "last row missing", lambda a: _cut(a, slice(-1, None), 0)
    yield "last column missing", lambda a: _cut(a, slice(-1, None), -1)
    yield "last tile missing", lambda a: _cut(a, slice(-max(1, a.shape[-1] // TILE), None), -1) if a.dim() else None
    yield "one head missing", lambda a: _cut(a, slice(-1, None), -2) if a.dim() > 2 else None
    yield "shifted by one", lambda a: _through(a, lambda t: torch.roll(t, 1, -1)) if a.dim() and a.shape[-1] > 1 else None
    yield "transposed", lambda a: _through(a, _transposed) if a.dim() > 1 and min(a.shape[-2:]) > 1 else None
    yield "half precision", lambda a: a.half() if tensors.name_of(a.dtype) in PRECISE else None
    yield "off by one in a thousand", lambda a: a * 1.001 if tensors.name_of(a.dtype) in PRECISE else None
    for source, tensor in one.values.items():
        if isinstance(tensor, torch.Tensor) and task.argument(source).role != "scratch":
            yield f"identity of {source}" if source != name else "untouched", lambda a, t=tensor: t  # type: ignore[misc]


def _through(tensor: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """A change that only moves elements, for types that torch cannot compute with."""
    return change(tensors.bits(tensor)).view(tensor.dtype)


def _zeros(tensor: torch.Tensor) -> torch.Tensor:
    wrong = tensor.clone()
    tensors.bits(wrong).zero_()
    return wrong


def _cut(tensor: torch.Tensor, where: slice, axis: int) -> torch.Tensor | None:
    """Zeros at `where` along `axis`; None where that leaves nothing."""
    if tensor.dim() < (axis + 1 if axis >= 0 else -axis) or tensor.shape[axis] < 2:
        return None
    wrong = tensor.clone()
    axis %= tensor.dim()
    tensors.bits(wrong)[tuple(where if i == axis else slice(None) for i in range(wrong.dim()))] = 0
    return wrong


def _mean(tensor: torch.Tensor) -> torch.Tensor | None:
    if tensor.numel() < 2 or tensors.packed(tensor.dtype):
        return None
    middle = float(tensor.double().mean())
    return torch.full(tensor.shape, middle, dtype=torch.float64, device=tensor.device)


def _transposed(tensor: torch.Tensor) -> torch.Tensor:
    """The last two axes written in the wrong order into the right shape."""
    return tensor.mT.reshape(tensor.shape)


# --------------------------------------------------------------------------------------------- misread inputs


class Misread(Struct, frozen=True):
    """Inputs as a wrong kernel reads them; the reference says what it would answer. `fine`: it is only less exact, in PRECISE results."""

    name: str
    values: Values
    fine: bool = False


def misread(task: Task, values: Values) -> Iterator[Misread]:
    """Tails that are not read, masks and lengths that are off by one, numbers in fewer bits than they have."""
    for name, tensor in values.items():
        if isinstance(tensor, torch.Tensor) and tensor.numel() and task.argument(name).role != "scratch":
            yield from (Misread(label, values | {name: wrong}) for label, wrong in _misread(name, task.argument(name).role, tensor))
    yield from _rounded(values, "computed in half precision", HALF)
    if task.rules.precision_floor:
        below, bits = FLOORS[task.rules.precision_floor]
        yield from _rounded(values, f"computed in {below}, below the floor", bits)


def _misread(name: str, role: str, tensor: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    long = bool(tensor.dim()) and tensor.shape[-1] > 1
    if tensor.dtype.is_floating_point and long and not tensors.packed(tensor.dtype):
        wrong = tensor.clone()
        tensors.bits(wrong)[..., -max(1, tensor.shape[-1] // TILE) :] = 0
        yield f"tail of {name} unread", wrong
    if tensor.dtype == torch.bool and long:
        yield f"wrong mask {name}", torch.roll(tensor, 1, -1)
    if role in ("index", "meta") and tensor.dtype in (torch.int32, torch.int64):
        yield f"one less in {name}", torch.clamp(tensor - 1, min=int(tensor.min()))


def _rounded(values: Values, name: str, bits: int) -> Iterator[Misread]:
    precise = {k: v for k, v in values.items() if isinstance(v, torch.Tensor) and v.dtype.is_floating_point and v.dtype.itemsize > 1}
    coarse = {k: shortened(v, bits) for k, v in precise.items()}
    if any(not tensors.equal(made, precise[k]) for k, made in coarse.items()):
        yield Misread(name, values | coarse, fine=True)


def shortened(tensor: torch.Tensor, bits: int) -> torch.Tensor:
    """Rounded to significands of so many bits, exponents as they are: the least that is lost by who computes in that type."""
    fraction, exponent = torch.frexp(tensor.double())
    return torch.ldexp(torch.round(fraction * 2.0**bits), exponent - bits).to(tensor.dtype)


def answers(one: Draw, change: Misread, exact: Results) -> Iterator[tuple[str, Results]]:
    """What a kernel that misreads its inputs answers, in the types of the right results. What comes out right again is no mutant, as of
    an input that cancels out: a bias before a normalisation."""
    changed = [name for name, right in one.exact.items() if not _cancelled(exact[name], right)]
    made = {name: _typed(exact[name], right) for name, right in one.working.items()}
    if changed and not change.fine:
        yield change.name, made
    for name in changed if change.fine else ():
        if tensors.name_of(made[name].dtype) in PRECISE:
            yield (f"{change.name} ({name})" if len(made) > 1 else change.name), one.working | {name: made[name]}


def _cancelled(found: torch.Tensor, right: torch.Tensor) -> bool:
    """The same, or apart by the rounding of float64 alone."""
    if tensors.equal(found, right):
        return True
    if right.dtype != torch.float64 or found.dtype != right.dtype or found.shape != right.shape:
        return False
    return float((found - right).abs().max()) <= CANCELLED * float(right.abs().max())


def _typed(found: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return found if found.dtype == right.dtype else found.to(right.dtype)
