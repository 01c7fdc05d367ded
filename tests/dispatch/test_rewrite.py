"""Imports of a kernel's own files become relative; all others stay; what the operator of a task is called with."""

from __future__ import annotations

import pytest

from keepfast.dispatch import operator, rewrite
from keepfast.errors import UsageError
from keepfast.task.signature import parse

FILES = (
    "kernel/kernel.py",
    "kernel/keepfast_tunables.py",
    "lib/util.py",
    "lib/deep/__init__.py",
    "lib/deep/more.py",
    "kernel/torch_like.py",
)
ROOTS = ("kernel", "", "lib")


@pytest.mark.parametrize(
    ("line", "made"),
    [
        ("from keepfast_tunables import A, B as C", "from .keepfast_tunables import A, B as C"),
        ("import keepfast_tunables", "from . import keepfast_tunables as keepfast_tunables"),
        ("import keepfast_tunables as t", "from . import keepfast_tunables as t"),
        ("from lib.util import f", "from ..lib.util import f"),
        ("from util import f", "from ..lib.util import f"),
        ("import lib.util as u", "from ..lib import util as u"),
        ("from deep.more import g", "from ..lib.deep.more import g"),
        ("from deep import more", "from ..lib.deep import more"),
        ("import torch", "import torch"),
        ("from . import sibling", "from . import sibling"),
        ("    import keepfast_tunables as t", "    from . import keepfast_tunables as t"),
        ("from keepfast_tunables import (\n    A,\n    B,\n)", "from .keepfast_tunables import A, B"),
        ("import torch, util", "import torch\nfrom ..lib import util as util"),
    ],
)
def test_a_line(line: str, made: str) -> None:
    if line.startswith("    "):
        line, made = f"def f():\n{line}\n", f"def f():\n{made}\n"
    assert rewrite.relative(line, "kernel/kernel.py", FILES, ROOTS) == made


def test_a_baseline_may_be_called_as_what_it_imports() -> None:
    assert rewrite.relative("import numpy as np", "numpy.py", ("numpy.py",), ("",)) == "import numpy as np"
    assert rewrite.relative("from numpy import exp", "numpy.py", ("numpy.py",), ("",)) == "from numpy import exp"


@pytest.mark.parametrize("line", ["import util; x = 1", "x = 1; import util", "import lib.util"])
def test_what_cannot_be_made_relative_is_refused_with_its_line(line: str) -> None:
    with pytest.raises(UsageError) as error:
        rewrite.relative(f"y = 0\n{line}", "kernel/kernel.py", FILES, ROOTS)
    assert error.value.where == "kernel/kernel.py:2"
    assert error.value.next_step


def test_what_comes_from_elsewhere() -> None:
    text = "from __future__ import annotations\nimport torch.nn, util\nfrom triton.language import load\nfrom . import x\n"
    assert rewrite.outside(text, "kernel/kernel.py", FILES, ROOTS) == {"torch", "triton"}


# --------------------------------------------------------------------------------------------- the operator of a task

SIGNATURE = parse("norm(Tensor x, Tensor weight, float eps) -> Tensor")


def test_a_call_is_read() -> None:
    text = "import torch\ndef kernel(x, weight, eps):\n    return torch.ops.aten.rms_norm.default(x, [x.shape[-1]], weight, eps=eps)\n"
    found = operator.read(text, SIGNATURE)
    assert found is not None
    assert found.op == "aten::rms_norm"
    assert found.args == (["arg", "x"], ["list", [["size", ["x", -1]]]], ["arg", "weight"])
    assert found.kwargs == {"eps": ["arg", "eps"]}
    assert found.order == ("x", "weight", "eps")


def test_an_overload_is_kept() -> None:
    text = "def kernel(x, weight, eps):\n    return torch.ops.ns.norm.out(x, weight, eps)\n"
    found = operator.read(text, SIGNATURE)
    assert found is not None
    assert found.op == "ns::norm.out"


@pytest.mark.parametrize(
    "body",
    [
        "return x", "return torch.ops.a.f(x, weight)", "return torch.ops.a.f(x, weight, eps, *more)",
        "return torch.ops.a.f(x + 1, weight, eps)",
        "return torch.ops.a.f(x, weight, eps) + torch.ops.a.g(x)", "return torch.ops.a.f(x, weight, eps, **more)", "return (",
    ],
)  # fmt: skip
def test_what_cannot_be_said_is_no_override(body: str) -> None:
    assert operator.read(f"def kernel(x, weight, eps):\n    {body}\n", SIGNATURE) is None
