"""`python -m keepfast.oracle.problem < QUESTION`: what a KernelBench file is: inputs, weights, sizes, and what is weak about it.

Shapes come from tensors without memory, so the file's own sizes cost nothing; contents from a case of odd sizes, where one works. For
`keepfast init --kernelbench`; nothing it says is a verdict. Must not know tasks.
"""

from __future__ import annotations

import ast
import inspect
import os
import symtable
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec
import torch
from msgspec import Struct
from msgspec.structs import replace
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from keepfast.errors import TaskError
from keepfast.oracle import defects, tensors
from keepfast.task.asked import AskProblem, Part, Problem

ODD = (7, 33, 65, 17, 9, 5)  # sizes that are no multiple of anything a kernel works in
SMALL = 1 << 24  # elements of arguments and outputs that are worth computing on a CPU
WEIGHTS = 1 << 28  # elements of a model that is worth building twice
KINDS = {bool: "bool", int: "int", float: "float", str: "str"}
Sizes = Mapping[str, int]


class Use(TorchDispatchMode):  # type: ignore[misc]
    """Which tensors the operators of a call take, which they write, and whether any of them draws random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.written, self.random = set[int](), set[int](), False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        self.random = self.random or torch.Tag.nondeterministic_seeded in func.tags
        for place, argument in enumerate(func._schema.arguments):
            value = args[place] if place < len(args) else given.get(argument.name)
            written = argument.alias_info is not None and argument.alias_info.is_write
            for tensor in value if isinstance(value, list | tuple) else [value]:
                if isinstance(tensor, torch.Tensor):
                    (self.written if written else self.read).add(id(tensor))
        return func(*args, **given)


class Called(Struct, frozen=True):
    """One call of a model with certain sizes."""

    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    read: tuple[str, ...]  # weights and buffers by name
    written: tuple[str, ...]
    random: bool
    model: Any

    @property
    def elements(self) -> int:
        return sum(t.numel() for t in (*self.inputs, *self.outputs) if isinstance(t, torch.Tensor))


class File:
    """The problem's file, run again for each set of sizes."""

    def __init__(self, path: str) -> None:
        self.path = path
        with open(path, encoding="utf-8") as file:
            self.text = file.read()
        self.names = self.run({})
        for name in ("Model", "get_inputs", "get_init_inputs"):
            if name not in self.names:
                raise TaskError(
                    f"defines no `{name}`", where=path, next_step="A KernelBench file has Model, get_inputs and get_init_inputs"
                )

    def run(self, sizes: Sizes) -> dict[str, Any]:
        """What the file defines, with these whole numbers in place of its own."""
        tree = ast.parse(self.text, self.path)
        for node in tree.body:
            name = _assigned(node)
            if name in sizes and isinstance(node, ast.Assign):
                node.value = ast.copy_location(ast.Constant(sizes[name]), node.value)
        names: dict[str, Any] = {"__name__": "problem", "__file__": self.path}
        exec(compile(tree, self.path, "exec"), names)  # the human's file, as Python would run it
        return names

    def axes(self) -> tuple[tuple[str, int], ...]:
        """Whole numbers of the file that get_inputs() uses and the constructor does not."""
        plain = {name: self.names[name] for node in ast.parse(self.text).body if (name := _assigned(node)) and _is_number(node)}
        fixed = self._used("get_init_inputs") | self._used("Model")
        free = self._used("get_inputs") - fixed
        return tuple((n, v) for n, v in plain.items() if n in free and type(v) is int and v > 0)

    def _used(self, name: str) -> set[str]:
        """Names of the file that a definition of it uses, directly or through others; its own variables are none."""
        bodies = {_assigned(n): {m.id for m in ast.walk(n) if isinstance(m, ast.Name)} for n in ast.parse(self.text).body if _assigned(n)}
        bodies |= {t.get_name(): set(_globals(t)) for t in symtable.symtable(self.text, self.path, "exec").get_children()}
        found: set[str] = set()
        waiting = [name]
        while waiting:
            new = bodies.get(waiting.pop(), set()) - found
            found |= new
            waiting += new & bodies.keys()
        return found

    def call(self, sizes: Sizes, *, evaluate: bool = False) -> Called:
        names = self.run(sizes)
        model = names["Model"](*names["get_init_inputs"]())
        model = model.eval() if evaluate else model
        inputs = tuple(_here(value) for value in names["get_inputs"]())
        known = {id(t): name for name, t in (*model.named_parameters(), *model.named_buffers())}
        with torch.no_grad(), Use() as use:
            found = model(*inputs)
        outputs = tuple(found) if isinstance(found, tuple | list) else (found,)
        read, written = (tuple(known[i] for i in known if i in seen) for seen in (use.read, use.written))
        return Called(inputs, outputs, read, written, use.random, model)

    def shaped(self, sizes: Sizes, *, evaluate: bool = False) -> Called:
        """The same without memory."""
        with FakeTensorMode(allow_non_fake_inputs=True):
            return self.call(sizes, evaluate=evaluate)


def _globals(table: symtable.SymbolTable) -> Iterator[str]:
    """Names of the file that a function or a class uses."""
    yield from (s.get_name() for s in table.get_symbols() if s.is_global() and s.is_referenced())
    for inner in table.get_children():
        yield from _globals(inner)


def _assigned(node: ast.stmt) -> str:
    """The name that a plain assignment binds."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return ""


def _is_number(node: ast.stmt) -> bool:
    """Whether what is assigned is made of numbers alone."""
    return isinstance(node, ast.Assign) and not any(isinstance(n, ast.Name | ast.Call) for n in ast.walk(node.value))


def _here(value: Any) -> Any:
    return value.cpu() if isinstance(value, torch.Tensor) else value


# --------------------------------------------------------------------------------------------- one answer


def problem(asked: AskProblem) -> Problem:
    file = File(asked.path)
    init = list(file.names["get_init_inputs"]())
    if not _literal(init):
        return Problem(error="get_init_inputs() returns more than numbers, texts and lists of them", step=_STEP)
    axes = file.axes()
    evaluate, full = _full(file, _smallest(asked, axes))
    if full.random:
        return Problem(error="forward() draws random numbers, so that no two calls agree", step=_STEP)
    wrong = next((type(o).__name__ for o in full.outputs if not isinstance(o, torch.Tensor)), "")
    if wrong or not full.outputs:
        return Problem(error=f"forward() returns {wrong or 'nothing'}, where a tensor or a tuple of tensors is needed", step=_STEP)
    inputs = _inputs(file.names["Model"], full.inputs)
    strange = next((p.kind for p in inputs if p.kind not in ("tensor", *KINDS.values())), "")
    if strange:
        return Problem(error=f"get_inputs() returns a {strange}, where tensors and numbers are needed", step=_STEP)
    inside, constant = _inside(full), _constant(file, full)
    if constant is None:
        return Problem(error="the constructor keeps random tensors that are neither parameters nor buffers", step=_STEP)
    weights = tuple(replace(w, constant=w.name in constant) for w in _weights(full) if w.name not in inside)
    buffers = {name for name, _ in full.model.named_buffers()}
    inside = tuple(dict.fromkeys((*inside, *(w.name for w in weights if w.constant and w.name in buffers))))
    small = () if asked.odd else _small(file, axes, evaluate=evaluate)
    found = Problem(
        axes,
        inputs,
        tuple(w for w in weights if w.name not in inside),
        len(full.outputs),
        repr(init),
        small,
        evaluate,
        inside,
        _bytes(full, inside),
    )
    return replace(found, notes=defects.notes(file, found, full))


_STEP = "Write this task by hand: docs/tasks.md#gpu-tasks"


def _smallest(asked: AskProblem, axes: tuple[tuple[str, int], ...]) -> Sizes:
    """The sizes of the first case, for those that the file lets vary."""
    known = dict(axes)
    return {k: v for k, v in asked.timed[0].items() if k in known} if asked.timed else {}


def _full(file: File, sizes: Sizes) -> tuple[bool, Called]:
    """Whether eval mode is needed, and a call in the mode that is right."""
    found = file.shaped(sizes)
    return (True, file.shaped(sizes, evaluate=True)) if found.random else (False, found)


def _literal(value: Any) -> bool:
    try:
        return bool(ast.literal_eval(repr(value)) == value)
    except (ValueError, SyntaxError):
        return False


def _inputs(model: Any, values: tuple[Any, ...]) -> tuple[Part, ...]:
    """One part for each value of get_inputs(), by the name of the parameter of forward()."""
    parameters = list(inspect.signature(model.forward).parameters.values())[1:]
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    names += [f"x{i}" for i in range(len(names), len(values))]
    return tuple(_part(name, value) for name, value in zip(names, values, strict=False))


def _part(name: str, value: Any) -> Part:
    if isinstance(value, torch.Tensor):
        return Part(name, tensors.name_of(value.dtype), tuple(value.shape))
    return Part(name, kind=KINDS.get(type(value), type(value).__name__))


def _weights(called: Called) -> Iterator[Part]:
    """Parameters and buffers that forward() reads, in the model's order."""
    for name, tensor in (*called.model.named_parameters(), *called.model.named_buffers()):
        if name in called.read:
            yield Part(name, tensors.name_of(tensor.dtype), tuple(tensor.shape))


def _inside(called: Called) -> tuple[str, ...]:
    """Buffers that forward() brings up to date: they are the model's own business, and the answer does not depend on them."""
    own = [name for name, _ in called.model.named_buffers()]
    running = []
    for prefix, module in called.model.named_modules():
        if module.training and getattr(module, "track_running_stats", False):
            running += [f"{prefix}.{name}".removeprefix(".") for name, _ in module.named_buffers(recurse=False)]
    return tuple(name for name in own if name in called.written or name in running)


def _constant(file: File, called: Called) -> set[str] | None:
    """Weights that the constructor makes the same whatever the seed: ones, zeros, masks. None when it keeps random tensors elsewhere."""
    if sum(p.numel() for p in called.model.parameters()) > WEIGHTS:
        return set()
    names = file.run({})
    found = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        found.append(_tensors(names["Model"](*names["get_init_inputs"]())))
    same = {name for name, one in found[0].items() if tensors.same(one.contiguous(), found[1][name].contiguous())}
    known = {name for name, _ in (*called.model.named_parameters(), *called.model.named_buffers())}
    return None if found[0].keys() - known - same else same & known


def _tensors(model: Any) -> dict[str, torch.Tensor]:
    """Everything that a model keeps: weights, buffers, and tensors that are plain attributes."""
    found = {name: t.detach() for name, t in (*model.named_parameters(), *model.named_buffers())}
    for prefix, module in model.named_modules():
        plain = {name: value for name, value in vars(module).items() if isinstance(value, torch.Tensor)}
        found |= {f"{prefix}.{name}".removeprefix("."): value.detach() for name, value in plain.items()}
    return found


def _small(file: File, axes: tuple[tuple[str, int], ...], *, evaluate: bool) -> tuple[tuple[str, int], ...]:
    """Odd sizes with which forward() works: for all axes, else for the first alone."""
    odd = tuple((name, min(value, ODD[i % len(ODD)])) for i, (name, value) in enumerate(axes))
    for sizes in (odd, (*odd[:1], *axes[1:])):
        if not sizes or sizes == axes:
            continue
        try:
            found = file.shaped(dict(sizes), evaluate=evaluate)
        except defects.UNFIT:
            continue
        if found.elements < SMALL:
            return sizes
    return ()


def _bytes(called: Called, inside: tuple[str, ...]) -> int:
    weights = [t for name, t in (*called.model.named_parameters(), *called.model.named_buffers()) if name not in inside]
    return sum(t.nbytes for t in (*called.inputs, *called.outputs, *weights) if isinstance(t, torch.Tensor))


@contextmanager
def _answering() -> Iterator[int]:
    """The descriptor of the answer; what the human's code prints goes elsewhere."""
    out = os.dup(1)
    os.dup2(2, 1)
    yield out


def main() -> None:
    with _answering() as out:
        asked = msgspec.json.decode(sys.stdin.buffer.read(), type=AskProblem)
        torch.distributions.Distribution.set_default_validate_args(False)  # it would look at contents that are not there
        try:
            found = problem(asked)
        except TaskError as wrong:
            found = Problem(error=wrong.what, step=wrong.next_step)
        with open(out, "wb") as file:
            file.write(msgspec.json.encode(found))


if __name__ == "__main__":
    main()
