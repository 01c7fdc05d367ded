"""The plugin against vLLM's interfaces as they were written down from its sources: IR operations with providers, a platform with a default
order, and the dispatcher where neither is there. Where vLLM can be imported, also against its own IR; no server runs here."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from keepfast.dispatch import export
from tests.dispatch import kit

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")

# What vllm.ir.op does when an implementation is registered and when an operation is called, and what it asserts.
IR = """
import inspect
import sys
import types

import torch
from torch import Tensor
from torch.library import infer_schema


class IrOpImpl:
    def __init__(self, op, provider, impl_fn, supported, supports_args, inplace=False):
        assert provider not in op.impls
        assert not inplace or op.allow_inplace
        schema = infer_schema(impl_fn, mutates_args=[])
        if schema != op._schema_str:
            raise ValueError(f"{schema} does not match native schema {op._schema_str}")
        if supports_args is not None:
            parameters = inspect.signature(supports_args).parameters
            assert not any(p.kind == inspect.Parameter.KEYWORD_ONLY for p in parameters.values())
            if len(parameters) != len(op._signature.parameters):
                raise ValueError("supports_args must have the same number of parameters")
        self.op, self.provider, self.impl_fn, self.supported, self._supports_args = op, provider, impl_fn, supported, supports_args
        self.inplace = inplace
        op.impls[provider] = self

    def supports_args(self, *args, **kwargs):
        return True if self._supports_args is None else self._supports_args(*args, **kwargs)


class IrOp:
    def __init__(self, name, native, allow_inplace=False):
        self.name, self.impls, self.allow_inplace = name, {}, allow_inplace
        self._signature, self._schema_str = inspect.signature(native), infer_schema(native, mutates_args=[])
        IrOpImpl(self, "native", native, True, None)

    def register_impl(self, provider, *, supported=True, supports_args=None, inplace=False):
        assert provider not in ("native", "unfused")
        return lambda f: IrOpImpl(self, provider, f, supported, supports_args, inplace)

    def __call__(self, *args, **kwargs):
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        for provider in platform().priorities()[self.name]:
            impl = self.impls[provider]
            if impl.supports_args(*bound.args):
                self.last = provider
                given = [a.clone() if impl.inplace and n.startswith("x") else a for n, a in bound.arguments.items()]
                return impl.impl_fn(*given)


def _softmax(x: Tensor, scale: float | None = None) -> Tensor:
    x = x if scale is None else x * scale
    return torch.exp(x - x.amax(-1, keepdim=True)) / torch.exp(x - x.amax(-1, keepdim=True)).sum(-1, keepdim=True)


def fused_add_rms_norm(
    x: Tensor, x_residual: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None
) -> tuple[Tensor, Tensor]:
    total = x + x_residual
    return total * torch.rsqrt(total.pow(2).mean(-1, keepdim=True) + epsilon) * weight, total


class Priorities:
    def __init__(self):
        if NEWER:
            self.priorities = {"_softmax": ["native"], "fused_add_rms_norm": ["native"]}
        else:
            self._softmax = ["native"]


class Platform:
    @classmethod
    def get_default_ir_op_priority(cls, vllm_config):
        return Priorities()

    @classmethod
    def import_kernels(cls):
        cls.imported = True

    @classmethod
    def priorities(cls):
        found = cls().get_default_ir_op_priority(None)
        return found.priorities if NEWER else vars(found)


def platform():
    return Platform


def module(name, **values):
    made = types.ModuleType(name)
    vars(made).update(values)
    sys.modules[name] = made
    return made


op = IrOp("_softmax", _softmax)
fused = IrOp("fused_add_rms_norm", fused_add_rms_norm, allow_inplace=True)
ir = module("vllm.ir", ops=types.SimpleNamespace(**({"_softmax": op, "fused_add_rms_norm": fused} if HAS_IR else {})))
platforms = module("vllm.platforms", current_platform=Platform() if INSTANCE else Platform)
module("vllm", ir=ir, platforms=platforms)
"""
USE = """
import op_fast
from op_fast import _override, _router, _vllm
_router._toolchains.update({-1: ""})
_vllm.register()
_vllm.register()  # vLLM may call it again
"""
WITH_IR = """
name = _vllm.PROVIDER  # with a hash of what is in the package
assert name.startswith("op_fast_") and name == _vllm._provider()
assert list(op.impls) == ["native", name], (list(op.impls), _router._said)
assert platform().priorities()["_softmax"] == [name, "native"]
x = torch.randn(8, 64)
torch.testing.assert_close(op(x), torch.softmax(x, -1))
assert op.last == name
assert op_fast.stats()["custom"] == 1
torch.testing.assert_close(op(x, 2.0), torch.softmax(2 * x, -1))  # an argument that the task does not have
assert op.last == "native"
op(torch.randn(33, 64))  # not certified
assert op.last == "native"
op(torch.randn(8, 64, dtype=torch.float64))
assert op.last == "native"
assert not _override.registered()
"""
WITHOUT_IR = """
assert list(op.impls) == ["native"]
assert Platform.imported
assert _override.registered(), _router._said
x = torch.randn(8, 64)
torch.softmax(x, -1)
assert op_fast.stats()["custom"] == 1
"""


# An operator that writes to two arguments and returns nothing, as vLLM's own kernels do. Our package calls it as stock.
TOY = """
import torch
toy = torch.library.Library("toy", "DEF")
toy.define("fused_add_rms_norm(Tensor(a!) input, Tensor(b!) residual, Tensor weight, float epsilon) -> ()")
def stock(input, residual, weight, epsilon):
    residual += input
    input.copy_(residual * torch.rsqrt(residual.pow(2).mean(-1, keepdim=True) + epsilon) * weight)
toy.impl("fused_add_rms_norm", stock, "CPU")
"""
FUSED = """
import norm_fast
from norm_fast import _override, _router, _vllm
_router._toolchains.update({-1: ""})
_vllm.register()
name = _vllm.PROVIDER
assert list(fused.impls) == ["native", name], (list(fused.impls), _router._said)
assert fused.impls[name].inplace
given = [torch.randn(8, 64), torch.randn(8, 64), torch.rand(64), 1e-6]
before = [a.clone() for a in given[:3]]
want = fused.impls["native"].impl_fn(*given)
torch.testing.assert_close(fused(*given), want)  # both results, in the operation's order
torch.testing.assert_close(given[:3], before)  # the default overload changes nothing
assert norm_fast.stats()["custom"] == 1
torch.testing.assert_close(fused(*given[:3], 1e-6, None), want)
assert norm_fast.stats()["custom"] == 2
fused(torch.randn(33, 64), torch.randn(33, 64), given[2], 1e-6)  # not certified
assert norm_fast.stats()["custom"] == 2
x, residual = given[0].clone(), given[1].clone()
found = fused.impls[name].impl_fn(x, residual, given[2], 1e-6)  # as vLLM calls it where it may write
assert found[0] is x and found[1] is residual
torch.testing.assert_close(found, want)
"""
# The same classes, from vLLM itself, on the CPU: the plugin registered, chosen first by the order set, answered.
GENUINE = """
import torch
import vllm.ir as ir
from vllm.platforms import current_platform
fused = ir.ops.fused_add_rms_norm
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("vllm")
    export.write(kit.source(kit.op_softmax(top / "task"), "op_fast"), export.Wanted(top / "out"), [])
    return top / "out"


@pytest.fixture(scope="module")
def in_place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("vllm_in_place")
    export.write(kit.source(kit.op_norm(top / "task"), "norm_fast"), export.Wanted(top / "out"), [])
    return top / "out"


def run(folder: Path, script: str, **env: str) -> None:
    known = os.environ | {"PYTHONPATH": str(folder / "src")} | env
    done = subprocess.run([sys.executable, "-c", script], env=known, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("newer", "instance"), [(True, False), (False, True)])
def test_a_provider_of_the_ir_operation(folder: Path, newer: bool, instance: bool) -> None:
    run(folder, f"NEWER, HAS_IR, INSTANCE = {newer}, True, {instance}\n{IR}\n{USE}\n{WITH_IR}")


def test_the_dispatcher_where_the_ir_has_no_such_operation(folder: Path) -> None:
    run(folder, f"NEWER, HAS_IR, INSTANCE = True, False, True\n{IR}\n{USE}\n{WITHOUT_IR}")


def test_without_vllm_and_switched_off(folder: Path) -> None:
    run(folder, "import torch, warnings\nwarnings.simplefilter('ignore')\n" + USE + "assert _override.registered()")
    run(folder, "import torch\n" + USE + "assert not _override.registered()", OP_FAST_ROUTE="stock")


def test_a_schema_that_does_not_fit_leaves_vllm_as_it_was(folder: Path) -> None:
    """The operation has another argument first: our provider is refused by vLLM, and the dispatcher is used."""
    odd = IR.replace("def _softmax(x: Tensor, scale: float | None = None)", "def _softmax()").replace(
        "    x = x if scale", "    x = scale = torch.ones(1, 1)\n    x = x if scale"
    )
    head = "import warnings\nwarnings.simplefilter('ignore')\nNEWER, HAS_IR, INSTANCE = True, True, True"
    run(folder, f"{head}\n{odd}\n{USE}\nassert list(op.impls) == ['native']\nassert _override.registered()")


def test_an_operator_that_writes_to_its_arguments_answers_with_them(in_place: Path) -> None:
    run(in_place, f"NEWER, HAS_IR, INSTANCE = True, True, False\n{TOY}\n{IR}\n{FUSED}")


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("allow_inplace=True)", "allow_inplace=False)"),  # the IR wants a functional one
        ("weight: Tensor | None, epsilon: float,", "epsilon: float, weight: Tensor | None = None,"),  # a tensor in a number's place
        ("x: Tensor, x_residual: Tensor,", "x: Tensor,"),  # fewer
        ("-> tuple[Tensor, Tensor]:", "-> tuple[Tensor, Tensor, Tensor]:"),
    ],
)
def test_an_operation_that_does_not_fit_an_operator_that_writes(in_place: Path, was: str, now: str) -> None:
    """Of the same name, and another thing: nothing is registered, and the operator is replaced instead."""
    assert was in IR
    odd = IR.replace(was, now)
    use = "import norm_fast\nfrom norm_fast import _override, _vllm\n_vllm.register()\n"
    head = "import warnings\nwarnings.simplefilter('ignore')\nNEWER, HAS_IR, INSTANCE = True, True, False"
    run(in_place, f"{head}\n{TOY}\n{odd}\n{use}\nassert list(fused.impls) == ['native']\nassert _override.registered()")


@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed")
def test_the_ir_of_a_genuine_vllm(in_place: Path) -> None:
    order = "found = current_platform.get_default_ir_op_priority(vllm_config)\nassert found.fused_add_rms_norm[0] == name\n"
    order += "fused.set_default([name, 'native'])\n"
    config = "from types import SimpleNamespace as S\nvllm_config = S(compilation_config=S(backend='eager', mode=0))\n"
    script = FUSED.replace("given = [", config + order + "given = [", 1)
    run(in_place, f"{TOY}\n{GENUINE}\n{script}", PYTHONPATH=os.pathsep.join([str(in_place / "src"), *sys.path]))
