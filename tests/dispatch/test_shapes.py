"""What shapes tell of the axes."""

from __future__ import annotations

import pytest

from keepfast.dispatch import shapes
from keepfast.dispatch.records import Dim, Seen
from keepfast.errors import TaskError
from keepfast.task.signature import parse

NORM = parse("norm(Tensor(a!) x, Tensor weight, Tensor? bias, float eps, int heads, str mode) -> (Tensor y, Tensor scale)")


def seen(m: int, n: int, **more: object) -> Seen:
    tensors = (
        ("x", "float32", (m, n), True),
        ("weight", "float32", (n,), True),
        ("y", "int8", (m, n), True),
        ("scale", "float32", (m, n // 128), True),
    )
    given = {"scalars": (("eps", 1e-6), ("heads", 8), ("mode", "fast"))} | more
    return Seen((("m", m), ("n", n)), tensors, **given)  # type: ignore[arg-type]


def test_axes_multiples_scalars_and_absent_tensors() -> None:
    arguments, outputs = shapes.read(NORM, (seen(3, 256), seen(5, 1024)))
    by_name = {a.name: a for a in arguments}
    assert shapes.places(arguments) == (("m", ("x", 0)), ("n", ("x", 1)))
    assert by_name["weight"].dims == (Dim("axis", 256, 1024, "n"),)
    assert not by_name["bias"].present
    assert (by_name["eps"].values, by_name["heads"].values, by_name["mode"].values) == ((), (8,), ("fast",))
    assert by_name["x"].written
    y, scale = outputs
    assert [(d.kind, d.axis) for d in y.dims] == [("axis", "m"), ("axis", "n")]
    assert (scale.dims[1].axis, scale.dims[1].over) == ("n", 128)


def test_constants_products_and_free_sizes() -> None:
    sig = parse("f(Tensor q, Tensor k) -> Tensor")
    cases = [(2, 16, 4096), (3, 32, 77), (4, 8, 900)]
    rows = tuple(
        Seen(
            (("b", b), ("s", s)),
            (("q", "float32", (b, 128), True), ("k", "float32", (b * s, s, odd), True), ("out", "float32", (b, 128), True)),
        )
        for b, s, odd in cases
    )
    (q, k), _ = shapes.read(sig, rows)
    assert q.dims[1] == Dim("free", 128, 128)
    assert (k.dims[0].kind, k.dims[0].axis, k.dims[0].other) == ("product", "b", "s")
    assert k.dims[2] == Dim("free", 77, 4096)
    assert shapes.size(k.dims[0], {"b": 5, "s": 6}) == 30
    assert shapes.size(k.dims[2], {"b": 5, "s": 6}) is None


def test_every_axis_finds_a_place_where_two_have_the_same_values() -> None:
    sig = parse("f(Tensor x) -> Tensor")
    row = Seen((("m", 8), ("n", 8)), (("x", "float32", (8, 8), True), ("out", "float32", (8, 8), True)))
    (x,), _ = shapes.read(sig, (row,))
    assert [d.axis for d in x.dims] == ["m", "n"]


def test_what_differs_between_cases_and_is_no_size_is_refused() -> None:
    one, two = seen(3, 256), seen(5, 1024)
    half = Seen(two.axes, tuple(("x", "float16", t[2], True) if t[0] == "x" else t for t in two.tensors), two.scalars)
    with pytest.raises(TaskError, match="of several types"):
        shapes.read(NORM, (one, half))
    gone = Seen(two.axes, tuple(t for t in two.tensors if t[0] != "weight"), two.scalars)
    with pytest.raises(TaskError, match="None in some cases"):
        shapes.read(NORM, (one, gone))
    with pytest.raises(TaskError, match="`mode` is None in some cases"):
        shapes.read(NORM, (one, seen(5, 1024, scalars=(("eps", 1.0), ("heads", 8)))))
