"""Wrong answers that a lazy or tricky kernel could give, made from right ones, and inputs as such a kernel would read them.

Must not know how answers are judged, nor candidates or clocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from keepfast.judge.sets import Draw, view
from keepfast.model import Task
from keepfast.model.task import FLOORS

if TYPE_CHECKING:
    import numpy as np

TILE = 8  # the last tile is this part of an axis
HALF = 11  # bits of a half-precision significand, the leading one counted
PRECISE = ("float32", "float64")  # results in which such rounding has to show
Change = Callable[["np.ndarray"], "np.ndarray | None"]


class Misread(Struct, frozen=True):
    """Inputs as a wrong kernel reads them; the reference says what it would answer. `fine`: it is only less exact, in `PRECISE` results."""

    name: str
    draw: Draw
    fine: bool = False


def mutants(task: Task, one: Draw, other: Draw) -> Iterator[tuple[str, tuple[np.ndarray, ...]]]:
    """Wrong answers for draw `one`; each mutates one result and leaves the others right. What comes out right again is no mutant."""
    results = task.signature.results
    for place, name in enumerate(results):
        right = one.working[place]
        for label, change in _changes(task, one, other, place):
            wrong = _changed(change, right)
            if wrong is not None:
                parts = list(one.working)
                parts[place] = wrong
                yield (f"{label} ({name})" if len(results) > 1 else label), tuple(parts)
    if len(results) > 1 and _like(one.working[0], one.working[1]) and not same(one.working[:1], one.working[1:2]):
        yield "swapped outputs", (one.working[1], one.working[0], *one.working[2:])


def _changed(change: Change, right: np.ndarray) -> np.ndarray | None:
    """The wrong answer in the type of the right one; None when the change does not apply, or changes nothing."""
    import numpy as np

    with np.errstate(over="ignore"):  # half precision ends at 65504
        wrong = change(right)
        if wrong is None or wrong.shape != right.shape:
            return None
        found: np.ndarray = wrong.astype(right.dtype)
    return None if np.array_equal(found, right) else found


def _like(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype


def _changes(task: Task, one: Draw, other: Draw, place: int) -> Iterator[tuple[str, Change]]:
    import numpy as np

    name = task.signature.results[place]
    yield "zeros", np.zeros_like
    yield "constant", lambda a: np.full_like(a, a.mean()) if a.size > 1 else None
    yield "stale output", lambda a: other.working[place]
    yield "first row only", lambda a: _cut(a, slice(1, None), 0)
    yield "last row missing", lambda a: _cut(a, slice(-1, None), 0)
    yield "last column missing", lambda a: _cut(a, slice(-1, None), a.ndim - 1)
    yield "last tile missing", lambda a: _cut(a, slice(-max(1, a.shape[-1] // TILE), None), a.ndim - 1) if a.ndim else None
    yield "one head missing", lambda a: _cut(a, slice(-1, None), a.ndim - 2) if a.ndim > 2 else None
    yield "shifted by one", lambda a: np.roll(a, 1, axis=-1) if a.ndim and a.shape[-1] > 1 else None
    yield "transposed", lambda a: _transposed(a) if a.ndim > 1 and min(a.shape[-2:]) > 1 else None
    yield "half precision", lambda a: a.astype(np.float16) if a.dtype in (np.float32, np.float64) else None
    yield "off by one in a thousand", lambda a: a * 1.001 if a.dtype.kind == "f" else None
    for source in task.signature.tensors:
        if any(s.name == source.name for s in one.layout.slots):
            yield f"identity of {source.name}" if source.name != name else "untouched", lambda a, s=source: initial(one, s.name)  # type: ignore[misc]


def _cut(array: np.ndarray, where: slice, axis: int) -> np.ndarray | None:
    """Zeros at `where` along `axis`; None when that leaves nothing or changes nothing."""
    if array.ndim <= max(axis, 0) or array.shape[axis] < 2:
        return None
    wrong: np.ndarray = array.copy()
    wrong[tuple(where if i == axis else slice(None) for i in range(array.ndim))] = 0
    return wrong


def _transposed(array: np.ndarray) -> np.ndarray:
    """The last two axes written in the wrong order into the right shape."""
    turned: np.ndarray = array.swapaxes(-1, -2)
    return turned.reshape(array.shape)


# --------------------------------------------------------------------------------------------- misread inputs


def misread(task: Task, draw: Draw) -> Iterator[Misread]:
    """Tails that are not read, masks that are off by one, numbers in fewer bits than they have."""
    for arg in task.signature.tensors:
        if not any(slot.name == arg.name for slot in draw.layout.slots):
            continue
        array = initial(draw, arg.name)
        if array.ndim and array.shape[-1] > 1 and array.dtype.kind == "f":
            yield Misread(f"tail of {arg.name} unread", _with(draw, ((arg.name, _untailed(array)),)))
        if array.ndim and array.shape[-1] > 1 and array.dtype.kind == "b":
            yield Misread(f"wrong mask {arg.name}", _with(draw, ((arg.name, _rolled(array)),)))
    yield from _rounded(task, draw, "computed in half precision", HALF)
    if task.rules.precision_floor:
        below, bits = FLOORS[task.rules.precision_floor]
        yield from _rounded(task, draw, f"computed in {below}, below the floor", bits)


def _rounded(task: Task, draw: Draw, name: str, bits: int) -> Iterator[Misread]:
    tensors = [(a.name, initial(draw, a.name)) for a in task.signature.tensors if any(s.name == a.name for s in draw.layout.slots)]
    coarse = tuple((name, shortened(array, bits)) for name, array in tensors if array.dtype.kind == "f")
    if any(not same((made,), (initial(draw, each),)) for each, made in coarse):
        yield Misread(name, _with(draw, coarse), fine=True)


def shortened(array: np.ndarray, bits: int) -> np.ndarray:
    """Rounded to significands of so many bits, exponents as they are: the least that is lost by who computes in that type."""
    import numpy as np

    fraction, exponent = np.frexp(array)
    found: np.ndarray = np.ldexp(np.rint(np.ldexp(fraction, bits)), exponent - bits).astype(array.dtype)
    return found


def _untailed(array: np.ndarray) -> np.ndarray:
    wrong: np.ndarray = array.copy()
    wrong[..., -max(1, array.shape[-1] // TILE) :] = 0
    return wrong


def _rolled(array: np.ndarray) -> np.ndarray:
    import numpy as np

    return np.roll(array, 1, axis=-1)


def _with(draw: Draw, changed: Sequence[tuple[str, np.ndarray]]) -> Draw:
    made = replace(draw, in_image=draw.in_image.copy(), out_image=draw.out_image.copy())
    for name, array in changed:
        initial(made, name)[...] = array
    return made


def with_tensor(one: Draw, other: Draw, name: str) -> Draw:
    """Draw `one` with the tensor `name` of `other`."""
    slot, image = one.layout.slot(name), one.in_image.copy()
    image[slot.base : slot.base + slot.span] = other.in_image[slot.base : slot.base + slot.span]
    return replace(one, in_image=image)


def same(a: Sequence[np.ndarray], b: Sequence[np.ndarray]) -> bool:
    import numpy as np

    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def initial(draw: Draw, name: str) -> np.ndarray:
    """What the tensor `name` holds before the call."""
    slot = draw.layout.slot(name)
    return view(draw.in_image if slot.region == "in" else draw.out_image, slot)
