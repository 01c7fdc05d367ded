"""The signature reader: torch schemas in, records out; every error with its column."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.model import Arg, Return
from keepfast.task.signature import SignatureError, parse, reserved


def test_everything_at_once() -> None:
    found = parse(
        "vllm::fused_add_rms_norm.out(Tensor(a!) input, Tensor(b!)? residual, Tensor? bias, Tensor(c) view, *, SymInt n=-1, "
        "float eps=1e-6, bool flag=True, str mode='x y', int? k=None) -> (Tensor(a!), Tensor, Tensor y, Tensor(c) same)"
    )
    assert found.name == "fused_add_rms_norm"
    assert found.args == (
        Arg("input", "tensor", alias="a", written=True),
        Arg("residual", "tensor", optional=True, alias="b", written=True),
        Arg("bias", "tensor", optional=True),
        Arg("view", "tensor", alias="c"),
        Arg("n", "int", default=-1, has_default=True),
        Arg("eps", "float", default=1e-6, has_default=True),
        Arg("flag", "bool", default=True, has_default=True),
        Arg("mode", "str", default="x y", has_default=True),
        Arg("k", "int", optional=True, default=None, has_default=True),
    )
    assert found.returns == (Return("input", "a"), Return("out0"), Return("y"), Return("same", "c"))
    assert found.results == ("input", "residual", "out0", "y")


@pytest.mark.parametrize(
    ("returns", "results"),
    [
        ("Tensor", ("out",)),
        ("Tensor y", ("y",)),
        ("(Tensor)", ("out",)),
        ("(Tensor, Tensor)", ("out0", "out1")),
        ("(Tensor, Tensor b)", ("out0", "b")),
        ("(Tensor a, Tensor)", ("a", "out1")),
    ],
)
def test_names_of_outputs(returns: str, results: tuple[str, ...]) -> None:
    assert parse(f"f(Tensor x) -> {returns}").results == results


def test_in_place_without_outputs() -> None:
    assert parse("f(Tensor(a!) x) -> ()").results == ("x",)
    assert parse("f(Tensor(a!) x) -> Tensor(a!)").outputs == ()


def test_float_default_written_as_a_whole_number() -> None:
    default = parse("f(Tensor x, float s=2) -> Tensor").args[1].default
    assert default == 2.0
    assert isinstance(default, float)


@pytest.mark.parametrize(
    ("text", "column", "what"),
    [
        ("", 1, "expected the name of the operator"),
        ("f", 2, "expected `(`"),
        ("f(Tensor x", 11, "expected `,` or `)` after `x`"),
        ("f(Tensor x, Tensor weight Tensor y) -> ()", 27, "expected `,` or `)` after `weight`"),
        ("f(Tensor x)", 12, "expected `->`"),
        ("f(Tensor x) -> ", 16, "expected `Tensor`"),
        ("f(Tensor x) -> ()", 18, "nothing to compare"),
        ("f(Tensor x) -> Tensor extra more", 29, "nothing may follow"),
        ("f(Tensro x) -> Tensor", 3, "no type `Tensro`. Did you mean `Tensor`?"),
        ("f(Scalar x) -> Tensor", 3, "Write `float` or `int`"),
        ("f(Tensor[] x) -> Tensor", 9, "lists are not supported"),
        ("f(int[2] x) -> Tensor", 6, "lists are not supported"),
        ("f(Tensor x) -> Tensor[]", 22, "lists are not supported"),
        ("f(Tensor x) -> int", 16, "a kernel returns tensors"),
        ("f(Tensor x) -> Tensor?", 22, "cannot be optional"),
        ("f(Tensor) -> Tensor", 9, "expected a name after the type"),
        ("f(Tensor x, int x) -> Tensor", 17, "`x` is named twice"),
        ("f(Tensor in) -> Tensor", 10, "is a word of C, C++ or Python"),
        ("f(Tensor stream) -> Tensor", 10, "the last argument of every kernel"),
        ("f(Tensor keepfast_x) -> Tensor", 10, "are taken"),
        ("f(Tensor out) -> Tensor", 18, "two tensors are called `out`"),
        ("f(Tensor x) -> (Tensor y, Tensor y)", 27, "two tensors are called `y`"),
        ("f(Tensor?(a!) x) -> ()", 10, "the alias set comes before the `?`"),
        ("f(Tensor(a! -> b) x) -> ()", 13, "one letter and perhaps `!`"),
        ("f(Tensor(a|b) x) -> Tensor", 11, "expected `)` after alias set"),
        ("f(Tensor(a!) x, Tensor(a!) y) -> ()", 24, "belongs to an earlier argument"),
        ("f(Tensor x) -> Tensor(a!)", 16, "no argument is `Tensor(a!)`"),
        ("f(Tensor(a) x) -> Tensor(a!)", 19, "no argument is `Tensor(a!)`"),
        ("f(Tensor x=3) -> Tensor", 12, "no default but None"),
        ("f(Tensor x=None) -> Tensor", 12, "only an optional argument"),
        ("f(int k=1.5) -> Tensor", 9, "of type int"),
        ("f(int k=True) -> Tensor", 9, "of type int"),
        ("f(bool k=1) -> Tensor", 10, "of type bool"),
        ("f(float k='a') -> Tensor", 11, "of type float"),
        ("f(int k=) -> Tensor", 9, "expected a default value"),
        ("f(int k=some) -> Tensor", 9, "`some` is not a default value"),
        ("f(int k=9223372036854775808) -> Tensor", 9, "beyond 64 bits"),
        ("f(*) -> Tensor", 4, "expected `,` after `*`"),
        ("f(*, Tensor x, *, int k) -> Tensor", 16, "`*` may stand once"),
        ("f(Tensor x,) -> Tensor", 12, "expected a type"),
        ("a::(Tensor x) -> Tensor", 4, "expected a name after `::`"),
        ("f.(Tensor x) -> Tensor", 3, "expected an overload name"),
    ],
)
def test_every_error_shows_its_column_and_an_example(text: str, column: int, what: str) -> None:
    with pytest.raises(SignatureError) as caught:
        parse(text)
    assert what in caught.value.what
    assert caught.value.what.startswith(f"signature, column {column}: ")
    assert caught.value.column == column
    _, caret, example = caught.value.next_step.split("\n")
    assert caret.index("^") == column - 1 + 2
    assert "Example: f(Tensor x" in example


def test_a_long_signature_still_shows_the_place() -> None:
    text = "f(" + ", ".join(f"Tensor x{i}" for i in range(30)) + ", Tensr y) -> Tensor"
    with pytest.raises(SignatureError) as caught:
        parse(text)
    shown, caret, _ = caught.value.next_step.split("\n")
    assert ("  " + shown)[caret.index("^") :].startswith("Tensr")


def test_caps() -> None:
    with pytest.raises(SignatureError, match="more than 64 arguments"):
        parse("f(" + ", ".join(f"int x{i}" for i in range(65)) + ") -> Tensor")
    with pytest.raises(SignatureError, match="longer than 2000"):
        parse("f(Tensor x) -> Tensor" + " " * 2000)


def test_control_characters_are_not_shown() -> None:
    with pytest.raises(SignatureError) as caught:
        parse("f(Tensor x\x1b[31m) -> Tensor")
    assert "\x1b" not in caught.value.text()


@pytest.mark.parametrize("name", ["for", "lambda", "template", "int64_t", "stream", "1x", "a-b", "", "ä"])
def test_reserved(name: str) -> None:
    assert reserved(name)


# --------------------------------------------------------------------------------------------- properties

NAMES = st.text(string.ascii_letters + "_", min_size=1, max_size=6).filter(lambda n: reserved(n) is None and not n.startswith("out"))
SPACE = st.sampled_from(["", " ", "  ", "\n"])
SCALARS = st.one_of(
    st.tuples(st.just("int"), st.integers(-(2**63), 2**63 - 1)),
    st.tuples(st.just("float"), st.floats(allow_nan=False, allow_infinity=False)),
    st.tuples(st.just("bool"), st.booleans()),
    st.tuples(st.just("str"), st.text(string.ascii_letters + " ,()", max_size=5)),
)


@st.composite
def arguments(draw: st.DrawFn, name: str, letter: str) -> Arg:
    if draw(st.booleans()):
        written, optional = draw(st.booleans()), draw(st.booleans())
        return Arg(name, "tensor", optional, letter if written or draw(st.booleans()) else "", written)
    kind, default = draw(SCALARS)
    has_default = draw(st.booleans())
    return Arg(name, kind, draw(st.booleans()), "", False, default if has_default else None, has_default)


@st.composite
def signatures(draw: st.DrawFn) -> tuple[tuple[Arg, ...], int]:
    names = draw(st.lists(NAMES, unique=True, min_size=1, max_size=6))
    return tuple(draw(arguments(name, string.ascii_lowercase[i])) for i, name in enumerate(names)), draw(st.integers(1, 3))


def write(arg: Arg) -> str:
    kind = "Tensor" if arg.kind == "tensor" else arg.kind
    alias = f"({arg.alias}{'!' if arg.written else ''})" if arg.alias else ""
    default = f"={arg.default!r}" if arg.has_default else ""
    return f"{kind}{alias}{'?' if arg.optional else ''} {arg.name}{default}"


@given(signatures(), SPACE, SPACE)
def test_what_is_written_is_read_back(wanted: tuple[tuple[Arg, ...], int], before: str, after: str) -> None:
    args, outputs = wanted
    comma = f"{before},{after}"
    returns = "Tensor" if outputs == 1 else f"({comma.join(['Tensor'] * outputs)})"
    found = parse(f"op{before}({after}{comma.join(map(write, args))}{before}){after}->{before}{returns}{after}")
    assert found.args == args
    assert len(found.outputs) == outputs


@given(st.text(alphabet="Tensor(a!)?*, ->:.=1x[]fint\n", max_size=60))
def test_any_text_is_a_signature_or_an_error_inside_it(text: str) -> None:
    try:
        place, fits = 1, bool(parse(text).results)
    except SignatureError as problem:
        place, fits = problem.column, True
    assert fits
    assert 1 <= place <= len(text) + 1
