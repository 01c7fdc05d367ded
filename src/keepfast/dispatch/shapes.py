"""What the shapes of arguments tell of the axes, found from the cases as the judge laid them out.

Pure. A dimension is an axis, a multiple or a part of one, a product of two, or it is free and then held to the range that was seen.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from keepfast.dispatch.records import Argument, Dim, Seen
from keepfast.errors import TaskError
from keepfast.model import Signature

FACTORS = (2, 3, 4, 6, 8, 16, 32, 64, 128, 256)


def read(signature: Signature, seen: Sequence[Seen]) -> tuple[tuple[Argument, ...], tuple[Argument, ...]]:
    """Arguments in schema order, and fresh outputs. TaskError for what differs between cases and is no size."""
    used: set[str] = set()  # axes that some argument tells
    made = [_tensor(a.name, a.written, seen, used) if a.kind == "tensor" else _scalar(a.name, a.kind, seen) for a in signature.args]
    bound = {axis for axis, _ in places(made)}
    outputs = (_tensor(r.name, True, seen, set()) for r in signature.outputs)
    return tuple(_explained(a, seen, bound) for a in made), tuple(_explained(o, seen, bound) for o in outputs)


def places(arguments: Iterable[Argument]) -> tuple[tuple[str, tuple[str, int]], ...]:
    """Where each axis can be read: (axis, (argument, dimension)); the first place of each."""
    found: dict[str, tuple[str, int]] = {}
    for argument in arguments:
        for i, dim in enumerate(argument.dims):
            if dim.kind == "axis" and dim.times == dim.over == 1:
                found.setdefault(dim.axis, (argument.name, i))
    return tuple(found.items())


def _tensor(name: str, written: bool, seen: Sequence[Seen], used: set[str]) -> Argument:
    tensors = [next((t for t in case.tensors if t[0] == name), None) for case in seen]
    if all(t is None for t in tensors):
        return Argument(name, "tensor", written=written, present=False)
    there = [t for t in tensors if t is not None]
    for what, values in (
        ("None in some cases", {t is None for t in tensors}),
        ("of several types", {t[1] for t in there}),
        ("of several ranks", {len(t[2]) for t in there}),
    ):
        if len(values) > 1:
            raise TaskError(f"`{name}` is {what}: one table cannot route both", next_step="Make a task of each")
    shapes = [t[2] for t in there]
    dims: list[Dim] = []
    for i in range(len(shapes[0])):
        dims.append(_direct(seen, [shape[i] for shape in shapes], (used, {d.axis for d in dims})))
    return Argument(name, "tensor", there[0][1], tuple(dims), written=written, contiguous=all(t[3] for t in there))


def _scalar(name: str, kind: str, seen: Sequence[Seen]) -> Argument:
    values = [dict(case.scalars).get(name) for case in seen]
    if any(v is None for v in values):
        if any(v is not None for v in values):
            raise TaskError(f"`{name}` is None in some cases: one table cannot route both", next_step="Make a task of each")
        return Argument(name, kind, present=False)
    kept = tuple(dict.fromkeys(v for v in values if isinstance(v, int | str)))
    return Argument(name, kind, values=() if kind == "float" else kept)


def _direct(seen: Sequence[Seen], values: Sequence[int], used: tuple[set[str], set[str]]) -> Dim:
    """The axis that this dimension is. Where there is a choice: one that nothing has told yet, then one that this tensor has not."""
    same = [axis for axis, _ in seen[0].axes if all(dict(c.axes)[axis] == v for c, v in zip(seen, values, strict=True))]
    low, high, (anywhere, here) = min(values), max(values), used
    same.sort(key=lambda axis: (axis in here, axis in anywhere))
    if not same:
        return Dim("free", low, high)
    anywhere.add(same[0])
    return Dim("axis", low, high, same[0])


def _explained(argument: Argument, seen: Sequence[Seen], bound: set[str]) -> Argument:
    """With a rule for every dimension that is no axis of its own, or one that no argument tells."""
    if not argument.dims:
        return argument
    rows, shapes = [dict(c.axes) for c in seen], [next(t[2] for t in c.tensors if t[0] == argument.name) for c in seen]
    dims = (d if d.axis in bound else explain(rows, [s[i] for s in shapes], bound) for i, d in enumerate(argument.dims))
    return replace(argument, dims=tuple(dims))


def explain(axes: Sequence[dict[str, int]], values: Sequence[int], bound: set[str]) -> Dim:
    """The simplest rule over axes that can be read which gives all values."""
    low, high = min(values), max(values)
    known = [a for a in axes[0] if a in bound]

    def fits(rule: Dim) -> bool:
        return all(size(rule, row) == value for row, value in zip(axes, values, strict=True))

    if low == high and not any(fits(Dim("axis", low, high, axis)) for axis in known):
        return Dim("free", low, high)
    simple = (Dim("axis", low, high, axis) for axis in known)
    scaled = (Dim("axis", low, high, a, times=t, over=o) for a in known for f in FACTORS for t, o in ((f, 1), (1, f)))
    products = (Dim("product", low, high, a, b) for a, b in itertools.combinations_with_replacement(known, 2))
    return next((rule for rule in itertools.chain(simple, scaled, products) if fits(rule)), Dim("free", low, high))


def size(dim: Dim, axes: dict[str, int]) -> int | None:
    """What the dimension must be for these axes; None when it is free."""
    if dim.kind == "axis":
        return -(-dim.times * axes[dim.axis] // dim.over)
    return axes[dim.axis] * axes[dim.other] if dim.kind == "product" else None
