"""What the human says of arguments of a GPU task: `x=bf16[m,n]`, `index=i64[m]<n`, `out=f32[m]!`, `k=8`, `shape=[n]`; and of its cases.

Owns the form, and what stands for an argument of which nothing is said. Must not know functions, operators or files.
"""

from __future__ import annotations

import re

from msgspec import Struct

from keepfast import dtypes, expr
from keepfast.errors import UsageError, nearest
from keepfast.task import texts

SHORT = {
    "bf16": "bfloat16", "f16": "float16", "fp16": "float16", "half": "float16", "f32": "float32", "fp32": "float32", "float": "float32",
    "f64": "float64", "double": "float64", "e4m3": "float8_e4m3fn", "fp8": "float8_e4m3fn", "e5m2": "float8_e5m2", "i8": "int8",
    "i16": "int16", "i32": "int32", "int": "int32", "i64": "int64", "long": "int64", "u8": "uint8", "byte": "uint8",
}  # fmt: skip
FORM = '--arg "x=bf16[m,n]", "index=i64[m]<n" (whole numbers below n), "y=f32[m]!" (written), "k=8", "shape=[n]", "dtype=torch.float16"'
DTYPE = "bfloat16"  # of a tensor of which nothing is said
OF_LAST_AXIS = ("weight", "bias", "gamma", "beta")  # names of tensors with one axis, the last
WEIGHTS = ("weight", "bias", "gamma", "beta", "w")  # names of what stays the same over many calls in real use
_TENSOR = re.compile(r"(?P<dtype>\w+)\s*\[(?P<dims>[^\[\]]*)\]\s*(?:<(?P<below>[^!<]+))?(?P<written>!?)", re.ASCII)
_LIST = re.compile(r"\[(?P<items>[^\[\]]*)\]")
_NAMED = re.compile(r"torch\.[a-z]\w*", re.ASCII)
_WORDS: dict[str, bool | None] = {"none": None, "true": True, "false": False}
Scalar = bool | int | float | str | None


class Cases(Struct, frozen=True):
    """Axes, the values of the cases that are timed, and of those that are only checked. `weights` of the timed ones, () for equal ones."""

    axes: tuple[str, ...]
    timed: tuple[tuple[int, ...], ...]
    odd: tuple[tuple[int, ...], ...] = ()
    weights: tuple[float, ...] = ()

    @property
    def all(self) -> tuple[tuple[str, ...], tuple[tuple[int, ...], ...]]:
        return self.axes, (*self.timed, *self.odd)


class Drawn(Struct, frozen=True):
    """A tensor that inputs() draws. `below`: whole numbers from 0 up to this; `written`: marked `!`."""

    dtype: str
    dims: tuple[str, ...]
    below: str = ""
    written: bool = False


class Fixed(Struct, frozen=True):
    """A number, a truth value, a text or None."""

    value: Scalar


class Listed(Struct, frozen=True):
    """A list of whole numbers: expressions over the axes."""

    items: tuple[str, ...]


class Named(Struct, frozen=True):
    """A constant of torch, as `torch.float8_e4m3fn`: passed on, and no argument of the task."""

    text: str


Given = Drawn | Fixed | Listed | Named


def cases(timed: tuple[str, ...], odd: tuple[str, ...]) -> Cases:
    """The cases of `--case` and `--odd`, which bind the same axes."""
    axes, values = texts.cases(timed)
    if not odd:
        return Cases(axes, values)
    others, found = texts.cases(odd, "--odd")
    if set(others) != set(axes):
        raise UsageError(f"binds {', '.join(others)}; the cases bind {', '.join(axes)}", where="--odd")
    return Cases(axes, values, tuple(tuple(row[others.index(axis)] for axis in axes) for row in found))


def arguments(said: tuple[str, ...], cases: Cases) -> dict[str, Given]:
    """Each `--arg`, by name."""
    found: dict[str, Given] = {}
    for text in said:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) or not value:
            raise UsageError(f"`{text}` is not of the form NAME=VALUE", where="--arg", next_step=FORM)
        if name in found:
            raise UsageError(f"`{name}` is said twice", where="--arg")
        found[name] = _value(name, value, cases)
    return found


def dtype(name: str, option: str = "--arg") -> str:
    """The element type that `name` is short for, or is."""
    full = SHORT.get(name, name)
    if full not in dtypes.names():
        known = (*SHORT, *dtypes.names())
        raise UsageError(
            f"`{name}` is no element type.{nearest(name, known)}", where=option, next_step=f"Types: {', '.join(dtypes.names())}"
        )
    return full


def plain(name: str, cases: Cases) -> Drawn:
    """What stands for a tensor of which nothing is said: all axes, or the last one when its name is that of a weight."""
    return Drawn(DTYPE, cases.axes[-1:] if name.lower() in OF_LAST_AXIS else cases.axes)


def role(name: str, given: Given) -> str:
    """The role that the contents call for."""
    if isinstance(given, Drawn) and not given.written:
        kind = dtypes.by_name(given.dtype)
        if given.below or not (kind.is_float or kind.name in ("int8", "uint8")):  # 8 bits are codes of values, unless they are bounded
            return "index"
        if name.lower() in WEIGHTS:
            return "weight"
    return "input"


def places(drawn: dict[str, Given], axes: tuple[str, ...]) -> dict[str, str]:
    """For each axis, where an argument shows it: {"n": "x.shape[1]"}."""
    found: dict[str, str] = {}
    for name, given in drawn.items():
        for i, dim in enumerate(given.dims if isinstance(given, Drawn) else ()):
            if dim in axes:
                found.setdefault(dim, f"{name}.shape[{i}]")
    return found


def shown(item: str, sizes: dict[str, str], what: str) -> str:
    """An expression over the axes, with each axis as an argument shows it."""
    for name in re.findall(r"[A-Za-z_]\w*", item):
        if name not in sizes:
            raise UsageError(f"{what} needs `{name}`, which no tensor shows as one of its sizes", next_step=FORM)
    return re.sub(r"[A-Za-z_]\w*", lambda found: sizes[found[0]], item)


def _value(name: str, text: str, cases: Cases) -> Given:
    tensor = _TENSOR.fullmatch(text)
    if tensor is not None:
        return _drawn(name, tensor, cases)
    if listed := _LIST.fullmatch(text):
        items = _items(listed["items"])
        for row in cases.all[1]:
            for item in items:
                number(item, dict(zip(cases.axes, row, strict=True)))
        return Listed(items)
    return Named(text) if _NAMED.fullmatch(text) else Fixed(_scalar(text))


def _drawn(name: str, found: re.Match[str], cases: Cases) -> Drawn:
    dims, below = _items(found["dims"]), (found["below"] or "").strip()
    for dim in (*dims, *([below] if below else [])):
        texts.dimension(name, dim, cases.all, "--arg")
    kind = dtype(found["dtype"])
    if below and dtypes.by_name(kind).is_float:
        raise UsageError(f"`{name}` is {kind}: only whole numbers are drawn below a bound", where="--arg")
    return Drawn(kind, dims, below, bool(found["written"]))


def _items(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(",") if item.strip())


def number(item: str, sizes: dict[str, int]) -> int:
    """The whole number, perhaps negative, that an expression over the axes is."""
    try:
        value = expr.parse(item, tuple(sizes)).value(sizes)
    except expr.ExprError as problem:
        raise UsageError(problem.what, where="--arg", next_step=FORM) from None
    if not isinstance(value, int):
        raise UsageError(f"`{item}` is no whole number", where="--arg", next_step="Divide with //")
    return value


def _scalar(text: str) -> Scalar:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text.strip("\"'")
