"""Python functions, their imports, torch's schemas and arguments on the command line, read as text. Nothing here needs torch."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from keepfast.errors import UsageError
from keepfast.task import given, newfolder, onboard_python, pyimports, pysource, torch_schema, torch_texts
from keepfast.task.given import Cases, Drawn, Fixed, Listed
from keepfast.task.load import load
from keepfast.task.onboard_python import PythonOrigin

FOREIGN = Path(__file__).parent / "foreign"
CASES = Cases(("m", "n"), ((16, 4096),), ((7, 33),))
SOURCE = """
from typing import Optional, Tuple, Union
import torch, triton

@triton.autotune(configs=[], key=[])
@triton.jit
def body(x, n, BLOCK: tl.constexpr):
    pass

def plain(x, y, eps=1e-6, flag=True, name="a", *, out=None):
    body[(1,)](x)
    return x + y

def typed(x: torch.Tensor, w: "Optional[Tensor]", k: int, s: float | None = None, dt: torch.dtype = torch.float16) -> torch.Tensor:
    if k:
        return x
    return w

def several(x, y) -> Tuple[torch.Tensor, torch.Tensor]:
    return helper(x, y)

def views(x, y):
    x = x.view(-1).contiguous()
    y, z = torch.empty_like(y), 1
    def inner():
        return 1, 2, 3
    return x, y, None, z

def fresh(x, y):
    x = x * 2
    return x

def writes(x: torch.Tensor) -> None:
    x.add_(1)

def unknown(x) -> "Result":
    return helper(x)

class Apply(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, eps=1e-6):
        return x

class Layer(torch.nn.Module):
    def forward(self, x):
        return x

    @staticmethod
    def step(x, w):
        return x * w

    def __call__(self, x):
        return x

if __name__ == "__main__":
    plain(1, 2)
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.py"
    path.write_text(SOURCE)
    return path


def test_parameters(source: Path) -> None:
    found = pysource.read(source, "plain")
    assert [(p.name, p.kind, p.has_default, p.keyword) for p in found.parameters] == [
        ("x", "", False, False),
        ("y", "", False, False),
        ("eps", "float", True, False),
        ("flag", "bool", True, False),
        ("name", "str", True, False),
        ("out", "", True, True),
    ]
    assert [p.kind for p in pysource.read(source, "typed").parameters] == ["tensor", "tensor", "int", "float", "other"]
    assert [p.literal for p in pysource.read(source, "typed").parameters] == [False, False, False, True, False]


@pytest.mark.parametrize(
    ("name", "returned", "back"),
    [
        ("plain", ("",), ()),
        ("typed", ("",), ()),  # one or the other: no name
        ("several", ("", ""), ()),
        ("views", ("x", "y", "", "z"), ("x",)),
        ("fresh", ("x",), ()),
        ("writes", (), ()),
        ("unknown", None, ()),
        ("Layer.step", ("",), ()),
    ],
)
def test_what_is_returned(source: Path, name: str, returned: tuple[str, ...] | None, back: tuple[str, ...]) -> None:
    found = pysource.read(source, name)
    assert (found.returned, found.back) == (returned, back)


def test_an_autograd_function_is_called_through_apply(source: Path) -> None:
    for name in ("Apply", "Apply.apply", "Apply.forward"):
        found = pysource.read(source, name)
        assert found.call == "Apply.apply"
        assert [(p.name, p.positional) for p in found.parameters] == [("x", True), ("eps", True)]


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("body", "Functions that launch it: plain"),
        ("plan", "Did you mean `plain`?"),
        ("Layer", "--kernelbench"),
        ("Layer.forward", "through an object"),
        ("plain.inner", "no function `plain.inner`"),
    ],
)
def test_what_is_no_function(source: Path, name: str, what: str) -> None:
    with pytest.raises(UsageError, match="is") as error:
        pysource.read(source, name)
    assert what in error.value.text()


def test_the_language_and_what_runs_at_import() -> None:
    assert pysource.language(SOURCE) == "triton"
    assert pysource.language("f = triton.jit(g)\n") == "triton"
    assert pysource.language("@cute.kernel\ndef f(): ...\n") == "cute"
    assert pysource.language("@torch.compile\ndef f(): ...\n") == "torch"
    assert pysource.runs(SOURCE) == ()
    assert pysource.runs("x = f()\nassert x\ntry:\n    g(1)\nexcept E:\n    pass\n") == ((2, "assert x"), (4, "g(1)"))


# --------------------------------------------------------------------------------------------- imports


def closure(path: str, *, bare: bool = False) -> tuple[str, list[str], tuple[str, ...]]:
    module = pyimports.module(FOREIGN / path, FOREIGN)
    found = pyimports.closure(module, FOREIGN, bare=bare)
    return module.name, [p.relative_to(FOREIGN).as_posix() for p in found.files], found.missing


def test_what_a_file_imports() -> None:
    own = ("torch", "triton")
    name, files, _ = closure("src/glus/ops/glu.py")
    assert (name, files) == ("glus.ops.glu", ["src/glus/__init__.py", "src/glus/ops/__init__.py", "src/glus/ops/utils.py"])
    name, files, missing = closure("gates/kernels/gate.py")
    assert [m for m in missing if m not in own] == ["a_large_package_that_nobody_has"]
    name, files, missing = closure("gates/kernels/gate.py", bare=True)
    assert (name, files, [m for m in missing if m not in own]) == ("gates.kernels.gate", ["gates/kernels/utils.py"], [])
    assert closure("tutorials/02-rows.py")[:2] == ("", [])


def test_names_that_are_taken_are_loaded_by_their_path(tmp_path: Path) -> None:
    for name in ("operator", "torch", "adapter"):
        (tmp_path / f"{name}.py").touch()
        assert pyimports.module(tmp_path / f"{name}.py", tmp_path).name == ""
    (tmp_path / "norm.py").touch()
    assert pyimports.module(tmp_path / "norm.py", tmp_path).name == "norm"


def test_imports_that_may_not_happen_are_given_but_not_missed(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import b\ndef f():\n    import c\ntry:\n    import nobody_has_this\nexcept ImportError:\n    pass\n")
    (tmp_path / "b.py").touch()
    (tmp_path / "c.py").write_text("import nobody_has_that\n")
    found = pyimports.closure(pyimports.module(tmp_path / "a.py", tmp_path), tmp_path, bare=False)
    assert ([p.name for p in found.files], found.missing) == (["b.py", "c.py"], ())


# --------------------------------------------------------------------------------------------- arguments


def test_arguments() -> None:
    said = ("x=bf16[m, n//2]", "i=i64[m]<n", "y=float32[m,n]!", "k=8", "e=1e-6", "s=[n, -1]", "a=None", "t=tanh", "z=f32[]", "f=true")
    assert given.arguments(said, CASES) == {
        "x": Drawn("bfloat16", ("m", "n//2")),
        "i": Drawn("int64", ("m",), "n"),
        "y": Drawn("float32", ("m", "n"), written=True),
        "k": Fixed(8),
        "e": Fixed(1e-6),
        "s": Listed(("n", "-1")),
        "a": Fixed(None),
        "t": Fixed("tanh"),
        "z": Drawn("float32", ()),
        "f": Fixed(True),
    }


@pytest.mark.parametrize(
    ("said", "what"),
    [
        ("x", "is not of the form NAME=VALUE"),
        ("x=bf17[m]", "`bf17` is no element type. Did you mean `bf16`?"),
        ("x=bf16[q]", "unknown name `q`"),
        ("x=bf16[m-16]", "not a whole number above 0"),
        ("x=bf16[m/3]", "Divide with //"),
        ("x=bf16[m]<n", "only whole numbers are drawn below a bound"),
        ("s=[m/3]", "is no whole number"),
    ],
)
def test_arguments_that_are_refused(said: str, what: str) -> None:
    with pytest.raises(UsageError) as error:
        given.arguments((said,), CASES)
    assert what in error.value.text()


def test_roles_and_contents() -> None:
    assert given.role("weight", Drawn("bfloat16", ("n",))) == "weight"
    assert given.role("x", Drawn("int8", ("n",))) == "input"
    assert given.role("x", Drawn("int8", ("n",), "n")) == "index"
    assert given.role("weight", Drawn("bfloat16", ("n",), written=True)) == "input"
    drawn = {
        "torch.randn((case.m, case.n//2), dtype=torch.bfloat16, **here)": Drawn("bfloat16", ("m", "n//2")),
        "torch.randn((), dtype=torch.float32, **here).to(torch.float8_e4m3fn)": Drawn("float8_e4m3fn", ()),
        "torch.randint(0, case.n, (case.m,), dtype=torch.int64, **here).to(torch.int32)": Drawn("int32", ("m",), "n"),
        "torch.rand((case.m,), **here) < 0.5": Drawn("bool", ("m",)),
        '"a"': Fixed("a"),
        'float("-inf")': Fixed(float("-inf")),
    }
    assert [torch_texts.content("x", one) for one in drawn.values()] == list(drawn)


# --------------------------------------------------------------------------------------------- schemas


@pytest.mark.parametrize(
    ("schema", "said", "signature"),
    [
        ("aten::gelu(Tensor self, *, str approximate='none') -> Tensor", {}, "gelu(Tensor self, *, str approximate='none') -> Tensor"),
        (
            "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
            {},
            "add(Tensor self, Tensor other, *, int alpha=1) -> Tensor",
        ),
        ("x::f(Tensor x, Scalar s) -> Tensor", {"s": Fixed(0.5)}, "f(Tensor x, float s) -> Tensor"),
        ("x::f(Tensor(a!) x, Tensor? b=None) -> (Tensor(a!), Tensor)", {}, "f(Tensor(a!) x, Tensor? b=None) -> Tensor"),
        ("x::f(Tensor x, int[2] s=[1, 1], ScalarType? t=None) -> (Tensor v, Tensor x)", {}, "f(Tensor x) -> (Tensor v, Tensor)"),
        ("x::f(Tensor x, SymInt[] s) -> Tensor", {"s": Listed(("n",))}, "f(Tensor x) -> Tensor"),
        ("x::f(Tensor(a!) x) -> ()", {}, "f(Tensor(a!) x) -> ()"),
    ],
)
def test_schemas(schema: str, said: dict[str, given.Given], signature: str) -> None:
    name, slots, returns = torch_schema.read(schema, said, CASES)
    assert torch_schema.signature(name, slots, returns) == signature


@pytest.mark.parametrize(
    ("schema", "what"),
    [
        ("x::f(Tensor[] x) -> Tensor", "`x` is a list of tensors"),
        ("x::f(Tensor x, int[] s) -> Tensor", "`s` is a list (int[])"),
        ("x::f(Tensor x, ScalarType t) -> Tensor", "`t` is a ScalarType"),
        ("x::f(Tensor x, int k) -> Tensor", "`k` is of type int and has no default"),
        ("x::f(Tensor x, Scalar k) -> Tensor", "`k` is a number without a default"),
        ("x::f(Tensor(a) x) -> Tensor(a)", "it returns a view"),
        ("x::f(Tensor x) -> int", "it returns `int`"),
    ],
)
def test_schemas_that_are_refused(schema: str, what: str) -> None:
    with pytest.raises(UsageError) as error:
        torch_schema.read(schema, {}, CASES)
    assert what in error.value.text()


# --------------------------------------------------------------------------------------------- a whole task


def test_a_task_of_a_function_needs_no_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "ops.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    said = SimpleNamespace(folder=tmp_path / "tasks/typed")
    origin = PythonOrigin("ops.py:typed", ("m=16 n=64",), arguments=("w=f32[n]", "k=1"), language="triton")
    newfolder.write(said.folder, onboard_python.files(said.folder, origin).files)
    task = load(said.folder)
    assert task.signature.text == "typed(Tensor x, Tensor w, int k=1) -> Tensor"  # neither `s` nor `dt` was said
    assert "return typed(x, w, k)" in (said.folder / "adapter.py").read_text()
    assert (task.editable, task.entry_path, task.languages) == (("ops.py",), "tasks/typed/adapter.py", ("triton",))
    assert (said.folder / "frozen/ops.py").read_text() == SOURCE
