"""Draws as memory: where the arguments of a call lie in a set, and tensors written to and read from such an image.

An image is a tensor of bytes. Strides are kept; gaps are zero. Must not know reference.py, seeds or messages.
"""

from __future__ import annotations

import math

import msgspec
import torch

from keepfast.gpu.layout import ALIGN, Audit, Given, Layout, Output, Tensor, contiguous, up
from keepfast.gpu.messages import Tolerance
from keepfast.model import Arg, Case, Task
from keepfast.oracle import compare, tensors
from keepfast.oracle.reference import Results, Values

GRANULE = 16  # bytes that are taken from one draw when the launcher mixes two


def layout_of(task: Task, case: Case, values: Values, outputs: tuple[Output, ...]) -> Layout:
    """Where everything lies: arguments in schema order, each ALIGNed, and what the fresh outputs must be."""
    given, at = [], 0
    for arg in task.signature.args:
        value = values[arg.name]
        if arg.kind == "tensor" and value is not None:
            place = _place(task, arg, value, at)
            given.append(Given(arg.name, "tensor", place, optional=arg.optional))
            at = up(at + place.nbytes)
        else:
            given.append(Given(arg.name, arg.kind, None, value, optional=arg.optional))
    return Layout(case.name, case.axes, tuple(given), outputs, max(at, ALIGN))


def outputs_of(task: Task, results: Results) -> tuple[Output, ...]:
    """The fresh outputs among results: contiguous, whatever view came back."""
    return tuple(_output(r.name, results[r.name]) for r in task.signature.outputs)


def _place(task: Task, arg: Arg, value: torch.Tensor, at: int) -> Tensor:
    said = task.argument(arg.name)
    size, shape, strides = value.element_size(), tuple(value.shape), tuple(value.stride())
    row = (shape[-1] if shape else 1) * size
    mixes = said.refresh == "element" and said.role not in ("index", "meta") and value.is_contiguous() and row % GRANULE == 0
    return Tensor(
        dtype=tensors.name_of(value.dtype),
        shape=shape,
        strides=contiguous(shape) if value.is_contiguous() else strides,
        offset=at,
        start=at,  # torch has no negative strides
        nbytes=_span(shape, strides) * size,
        written=arg.written and said.role != "scratch",
        role=said.role,
        refresh="element" if mixes else "whole",
    )


def _span(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Elements from the first to the last one in memory."""
    if math.prod(shape) == 0:
        return 0
    return 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))


def _output(name: str, tensor: torch.Tensor) -> Output:
    return Output(name, tensors.name_of(tensor.dtype), tuple(tensor.shape), tensor.numel() * tensor.element_size())


def tolerances(layout: Layout) -> tuple[Tolerance, ...]:
    """Type and columns of each result, without budgets. What is strided is compared as one row: its rows are not rows of memory."""
    written = []
    for given in layout.written:
        assert given.tensor is not None
        tensor = given.tensor
        plain = tensor.strides == contiguous(tensor.shape)
        size = tensors.dtype_of(tensor.dtype).itemsize
        columns = max(1, compare.width(tensor.shape)) if plain else max(1, tensor.nbytes // size)
        written.append(Tolerance(tensor.dtype, columns, 0.0, 0.0))
    return (*written, *(Tolerance(o.dtype, max(1, compare.width(o.shape)), 0.0, 0.0) for o in layout.outputs))


def results_named(layout: Layout) -> tuple[str, ...]:
    return tuple(name for name, _ in layout.results)


def view(image: torch.Tensor, tensor: Tensor, at: int) -> torch.Tensor:
    """The tensor whose first element is at byte `at` of an image, in place."""
    dtype = tensors.dtype_of(tensor.dtype)
    if tensor.nbytes == 0:
        return torch.empty_strided(tensor.shape, tensor.strides, dtype=dtype, device=image.device)
    return image[at : at + tensor.nbytes].view(dtype).as_strided(tensor.shape, tensor.strides)


def write(image: torch.Tensor, layout: Layout, values: Values) -> None:
    """The set's image of these arguments; everything else in it becomes zero."""
    image.zero_()
    for given in layout.tensors:
        assert given.tensor is not None
        target, source = tensors.bits(view(image, given.tensor, given.tensor.start)), tensors.bits(values[given.name])
        for axis in range(target.dim()):  # what an expanded argument repeats lies in memory once
            if target.stride(axis) == 0 and target.shape[axis] > 1:
                target, source = target.narrow(axis, 0, 1), source.narrow(axis, 0, 1)
        target.copy_(source)


def read(image: torch.Tensor, layout: Layout) -> Values:
    """The arguments of a set, tensors as views of its image."""
    return {g.name: view(image, g.tensor, g.tensor.start) if g.tensor is not None else g.value for g in layout.given}


def results(image: torch.Tensor, layout: Layout, places: Audit) -> Results:
    """The results of an audited call, as views of the audit memory: written arguments as they lie, outputs contiguous."""
    found: Results = {}
    shapes = [g.tensor for g in layout.written if g.tensor is not None]
    shapes += [Tensor(o.dtype, o.shape, contiguous(o.shape), 0, 0, o.nbytes) for o in layout.outputs]
    for name, tensor, at in zip(results_named(layout), shapes, places.results, strict=True):
        found[name] = view(image, tensor, at + tensor.start - tensor.offset)
    return found


def mixed(layout: Layout, one: Values, other: Values, rng: torch.Generator) -> Values:
    """Arguments as the launcher makes them: each granule of an `element` tensor from the same place of one of two draws.
    What is used whole comes from `one`, so that tensors which mean something together stay together."""
    values: Values = dict(one)
    for given in layout.tensors:
        assert given.tensor is not None
        if given.tensor.refresh == "element":
            values[given.name] = _mix(one[given.name], other[given.name], rng)
    return values


def _mix(a: torch.Tensor, b: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    width = GRANULE // a.element_size()
    x, y = (tensors.bits(t.contiguous()).reshape(-1, width) for t in (a, b))
    pick = torch.rand(x.shape[0], 1, generator=rng, device=a.device) < 0.5
    return torch.where(pick, x, y).view(a.dtype).reshape(a.shape)


def alike(one: Layout, other: Layout) -> str:
    """Where two layouts of one case differ: "" when they do not, else an argument's name."""

    def said(given: Given) -> bytes:  # NaN is equal to itself here
        return msgspec.msgpack.encode(given)

    return next((a.name for a, b in zip(one.given, other.given, strict=True) if said(a) != said(b)), "")
