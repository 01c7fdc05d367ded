"""The texts of a task around a KernelBench problem: reference.py, the adapter of a model, and baselines.

In each the weights are arguments, bound to the model by name and not copied. Must not know how a problem was read.
"""

from __future__ import annotations

from msgspec import Struct


class Weight(Struct, frozen=True):
    name: str  # of the argument
    inner: str  # in the model


class Call(Struct, frozen=True):
    """How the model is called. `tensor`: an argument that is a tensor; `floating`: one that is floating, or ""."""

    inputs: tuple[str, ...]
    kinds: tuple[str, ...]
    weights: tuple[Weight, ...]
    init: str
    evaluate: bool
    tensor: str
    floating: str

    @property
    def names(self) -> str:
        return ", ".join((*self.inputs, *(w.name for w in self.weights)))

    @property
    def given(self) -> str:
        """The inputs as a tuple."""
        return f"({', '.join(self.inputs)}{',' if len(self.inputs) == 1 else ''})"

    @property
    def bound(self) -> str:
        """The weights as a dict, by the model's names."""
        return "{" + ", ".join(f'"{w.inner}": {w.name}' for w in self.weights) + "}"

    @property
    def values(self) -> str:
        """The weights as a tuple."""
        return f"({', '.join(w.name for w in self.weights)}{',' if len(self.weights) == 1 else ''})"

    @property
    def mode(self) -> str:
        return ".eval()" if self.evaluate else ""


# --------------------------------------------------------------------------------------------- reference.py

_REFERENCE = '''\
"""{file} of KernelBench. What its Model gives, kept in frozen/problem.py, is right; weights and inputs are drawn as it draws them."""

import ast
from pathlib import Path

import torch
from torch.func import functional_call

PROBLEM = Path(__file__).resolve().parent / "frozen" / "problem.py"


def problem(sizes):
    """What the file defines, with these whole numbers in place of its own."""
    tree = ast.parse(PROBLEM.read_text(encoding="utf-8"), str(PROBLEM))
    for node in tree.body:
        name = getattr(node.targets[0], "id", "") if isinstance(node, ast.Assign) else ""
        if name in sizes:
            node.value = ast.copy_location(ast.Constant(sizes[name]), node.value)
    names = {{"__name__": "problem", "__file__": str(PROBLEM)}}
    exec(compile(tree, str(PROBLEM), "exec"), names)
    return names


def inputs(case, rng):
    """Inputs as get_inputs() makes them, then weights as the constructor does, on the GPU. Change values to what is used."""
    names = problem(case.axes)
    with torch.device(rng.device):
{made}{drawn}
    return {{
{lines}    }}


def reference({names}):
    """What the model gives with these weights, also in float64."""
    names = problem({{}})
    with torch.device({tensor}.device):
        model = names["Model"](*names["get_init_inputs"]()){mode}
{wide}    with torch.no_grad():
        return functional_call(model, {bound}, {given})
'''
_WIDE = "    if {floating}.dtype == torch.float64:\n        model = model.double()\n"
_NOISE = "        # The constructor makes some weights of ones or zeros: noise, so that leaving them out is wrong.\n"


def reference(file: str, call: Call, noisy: frozenset[str]) -> str:
    """`noisy`: weights that get noise, by the model's names."""
    made = '        model = names["Model"](*names["get_init_inputs"]())\n' if call.weights else ""
    into = f"{', '.join(call.inputs)}{',' if len(call.inputs) == 1 else ''}"
    drawn = f'        {into} = names["get_inputs"]()\n' if call.inputs else ""
    if call.weights:
        drawn += "        weights = {n: t.detach() for n, t in (*model.named_parameters(), *model.named_buffers())}\n"
    if noisy:
        names = ", ".join(f'"{n}"' for n in sorted(noisy))
        drawn += f"{_NOISE}        for name in [{names}]:\n"
        drawn += "            weights[name] = weights[name] + torch.randn_like(weights[name]) / 4\n"
    lines = [f'        "{name}": {_input(name, kind)},\n' for name, kind in zip(call.inputs, call.kinds, strict=True)]
    lines += [f'        "{w.name}": weights["{w.inner}"].to(rng.device),\n' for w in call.weights]
    return _REFERENCE.format(
        file=file,
        made=made,
        drawn=drawn.rstrip("\n"),
        lines="".join(lines),
        names=call.names,
        tensor=call.tensor,
        mode=call.mode,
        wide=_WIDE.format(floating=call.floating) if call.floating else "",
        bound=call.bound,
        given=call.given,
    )


def _input(name: str, kind: str) -> str:
    return f"{name}.to(rng.device)" if kind == "tensor" else name


# --------------------------------------------------------------------------------------------- kernel/kernel.py

_ADAPTER = '''\
"""Calls {model} of model.py with the weights that it is given: bound by name, not copied."""

import torch
from model import {model}
from torch.func import functional_call

INIT = {init}  # get_init_inputs()
WEIGHTS = {weights}  # as the problem's Model calls them, in the order of the arguments
_made = {{}}  # device: the model, and what it calls the weights


def kernel({names}):
    model, called = _model({tensor}.device, {values})
    with torch.no_grad():
        return functional_call(model, dict(zip(called, {values})), {given})


def _model(device, weights):
    """The model, made once on the device. It keeps no weights of its own: they come with every call."""
    if device not in _made:
        with torch.device(device):
            model = {model}(*INIT){mode}
        own = dict((*model.named_parameters(), *model.named_buffers()))
        called = _called(own, [name for name, _ in model.named_parameters()], weights)
        for name in called:
            own[name].data = own[name].new_empty(0)
        _made[device] = (model, called)
    return _made[device]


def _called(own, order, weights):
    """What the model calls the weights: what the problem calls them, or else what it has in the same order in the same shapes."""
    if all(name in own and own[name].shape == weight.shape for name, weight in zip(WEIGHTS, weights)):
        return WEIGHTS
    if [own[name].shape for name in order] == [weight.shape for weight in weights]:
        return order
    wanted = ", ".join(f"{{name}} {{tuple(weight.shape)}}" for name, weight in zip(WEIGHTS, weights))
    raise ValueError(f"{model} has {{', '.join(order) or 'no weights'}}; the problem has {{wanted}}: write the model's names in WEIGHTS")
'''


def adapter(call: Call, model: str) -> str:
    """kernel/kernel.py: binds the arguments to `model` of model.py."""
    weights = ", ".join(f'"{w.inner}"' for w in call.weights) + ("," if len(call.weights) == 1 else "")
    return _ADAPTER.format(
        model=model,
        init=call.init,
        weights=f"({weights})",
        names=call.names,
        tensor=call.tensor,
        values=call.values,
        given=call.given,
        mode=call.mode,
    )


# --------------------------------------------------------------------------------------------- baselines

_BASELINE = '''\
{problem}

# --------------------------------------------------------------------------------------------- keepfast: the Model above, {how}

import torch as _torch
from torch.func import functional_call as _functional_call

_made = {{}}


def kernel({names}):
    weights = {bound}
    if {tensor}.device not in _made:
        _made[{tensor}.device] = _model({tensor}.device, weights)
    with _torch.no_grad():
        return _made[{tensor}.device](weights, {given})


def _model(device, weights):
    """The model as a function of weights and inputs. It keeps no weights of its own: they come with every call."""
    with _torch.device(device):
        model = Model({init}){mode}
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if name in weights:
            tensor.data = tensor.new_empty(0)
    return {function}
'''


def baseline(problem: str, call: Call, *, compiled: bool) -> str:
    """The problem's file with a kernel() below it."""
    function = "lambda weights, inputs: _functional_call(model, weights, inputs)"
    return _BASELINE.format(
        problem=problem.rstrip("\n"),
        how="through torch.compile" if compiled else "as it is",
        names=call.names,
        tensor=call.tensor,
        init=call.init[1:-1],
        mode=call.mode,
        bound=call.bound,
        given=call.given,
        function=f"_torch.compile({function}, dynamic=False)" if compiled else function,
    )
