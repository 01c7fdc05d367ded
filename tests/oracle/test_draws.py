"""Layouts and images of sets: everything lies where the layout says, and comes back as it was."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from keepfast.gpu import layout as places  # noqa: E402
from keepfast.model import Argument, Case  # noqa: E402
from keepfast.oracle import draws, tensors  # noqa: E402
from keepfast.task.signature import parse  # noqa: E402
from tests.judge.tasks import softmax_task  # noqa: E402

CASE = Case("main", (("n", 8),))


def laid_out(signature: str, values: dict[str, Any], outputs: dict[str, Any] | None = None, **changes: Any) -> Any:
    task = softmax_task(signature=parse(signature), **changes)
    results = outputs or {r.name: torch.ones(1) for r in task.signature.outputs}
    return draws.layout_of(task, CASE, values, draws.outputs_of(task, results))


def tensor(layout: Any, name: str) -> Any:
    return next(g.tensor for g in layout.given if g.name == name)


def test_arguments_lie_aligned_in_schema_order_and_outputs_apart() -> None:
    values = {"x": torch.zeros(3, 100), "k": 7, "bias": None, "y": torch.zeros(5, dtype=torch.bfloat16)}
    layout = laid_out(
        "f(Tensor(a!) x, int k, Tensor? bias, Tensor y) -> (Tensor o, Tensor p)", values, {"o": torch.zeros(4, 2).t(), "p": torch.ones(())}
    )
    assert [(g.name, g.kind, g.value) for g in layout.given] == [
        ("x", "tensor", None),
        ("k", "int", 7),
        ("bias", "tensor", None),
        ("y", "tensor", None),
    ]
    assert [(g.tensor.offset, g.tensor.nbytes, g.tensor.written) for g in layout.tensors] == [(0, 1200, True), (1536, 10, False)]
    assert layout.set_bytes == 2048
    assert [(o.name, o.dtype, o.shape, o.nbytes) for o in layout.outputs] == [("o", "float32", (2, 4), 32), ("p", "float32", (), 4)]
    assert draws.results_named(layout) == ("x", "o", "p")
    assert [t.columns for t in draws.tolerances(layout)] == [100, 8, 1]


@pytest.mark.parametrize(
    ("value", "said", "refresh"),
    [
        (torch.zeros(3, 8), {}, "element"),
        (torch.zeros(3, 8), {"refresh": "whole"}, "whole"),
        (torch.zeros(3, 8), {"role": "weight"}, "element"),
        (torch.zeros(3, 8), {"role": "index"}, "whole"),
        (torch.zeros(3, 8), {"role": "meta"}, "whole"),
        (torch.zeros(3, 9), {}, "whole"),
        (torch.zeros(3, 8, dtype=torch.bfloat16), {}, "element"),
        (torch.zeros(3, 4, dtype=torch.bfloat16), {}, "whole"),
        (torch.zeros(8, 8).t(), {}, "whole"),
        (torch.zeros(()), {}, "whole"),
    ],
)
def test_what_is_mixed_and_what_is_used_whole(value: Any, said: dict[str, str], refresh: str) -> None:
    layout = laid_out("f(Tensor x) -> Tensor", {"x": value}, arguments=(Argument("x", **said),))
    assert tensor(layout, "x").refresh == refresh


def test_scratch_is_not_compared() -> None:
    layout = laid_out(
        "f(Tensor(a!) w, Tensor(b!) x) -> ()", {"w": torch.ones(4), "x": torch.ones(4)}, arguments=(Argument("w", role="scratch"),)
    )
    assert (tensor(layout, "w").role, tensor(layout, "w").written) == ("scratch", False)
    assert draws.results_named(layout) == ("x",)


BIG = torch.arange(4096, dtype=torch.int32)
STRIDED = {
    "plain": BIG.reshape(64, 64),
    "transposed": BIG.reshape(32, 128).t(),
    "sliced": BIG.reshape(64, 64)[3:40:2, 5:50:3],
    "expanded": BIG[:16].reshape(1, 16).expand(5, 16),
    "windows": BIG[:64].unfold(0, 16, 4),
    "empty": BIG[:0].reshape(4, 0),
    "scalar": BIG[7],
}


@pytest.mark.parametrize("kind", list(STRIDED))
def test_an_image_holds_what_was_drawn_and_zeros(kind: str) -> None:
    values = {"a": torch.ones(3, dtype=torch.float64), "x": STRIDED[kind], "z": torch.tensor([True, False])}
    layout = laid_out("f(Tensor a, Tensor x, Tensor z) -> Tensor", values)
    image = torch.full((layout.set_bytes,), 0xAB, dtype=torch.uint8)
    draws.write(image, layout, values)
    back = draws.read(image, layout)
    for name, value in values.items():
        assert torch.equal(back[name], value)
        assert back[name].dtype == value.dtype
    assert back["x"].stride() == tuple(tensor(layout, "x").strides)
    used = torch.zeros_like(image, dtype=torch.bool)
    for given in layout.tensors:
        used[given.tensor.offset : given.tensor.offset + given.tensor.nbytes] = True
    assert int(image[~used].count_nonzero()) == 0


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "float8_e8m0", "float4_e2m1", "bfloat16", "uint16", "uint64", "bool"])
def test_every_element_type_travels(name: str) -> None:
    dtype = tensors.dtype_of(name)
    data = torch.randint(0, 2 if name == "bool" else 256, (4, 16 * dtype.itemsize), dtype=torch.uint8).view(dtype)
    layout = laid_out("f(Tensor(a!) x) -> ()", {"x": data})
    assert tensor(layout, "x").dtype == name
    assert tensors.name_of(dtype) == name
    image = torch.empty(layout.set_bytes, dtype=torch.uint8)
    draws.write(image, layout, {"x": data})
    assert tensors.same(draws.read(image, layout)["x"], data)


def test_results_are_read_where_the_audit_puts_them() -> None:
    x, out = torch.arange(12.0).reshape(3, 4).t(), torch.arange(5, dtype=torch.int8)
    layout = laid_out("f(Tensor y, Tensor(a!) x) -> Tensor", {"y": torch.ones(100), "x": x}, {"out": out})
    audit = places.audit(layout)
    image = torch.zeros(audit.size, dtype=torch.uint8)
    image[audit.results[0] : audit.results[0] + 48] = torch.arange(12.0).view(torch.uint8)
    image[audit.results[1] : audit.results[1] + 5] = out.view(torch.uint8)
    found = draws.results(image, layout, audit)
    assert torch.equal(found["x"], x)
    assert torch.equal(found["out"], out)
    assert [t.columns for t in draws.tolerances(layout)] == [12, 5]  # a strided result is compared as one row


def test_mixing_takes_each_granule_from_one_of_two_draws() -> None:
    one = {"x": torch.zeros(64, 16), "w": torch.zeros(3), "k": 1}
    other = {"x": torch.ones(64, 16), "w": torch.ones(3), "k": 1}
    layout = laid_out("f(Tensor x, Tensor w, int k) -> Tensor", one)
    found = draws.mixed(layout, one, other, torch.Generator().manual_seed(1))
    granules = found["x"].reshape(-1, 4)
    assert torch.equal(granules, granules[:, :1].expand(-1, 4))
    assert 64 < int(granules[:, 0].sum()) < 192
    assert torch.equal(found["w"], one["w"])


def test_draws_that_do_not_lie_alike_are_named() -> None:
    one = laid_out("f(Tensor x, float k) -> Tensor", {"x": torch.ones(3), "k": float("nan")})
    assert draws.alike(one, laid_out("f(Tensor x, float k) -> Tensor", {"x": torch.ones(3), "k": float("nan")})) == ""
    assert draws.alike(one, laid_out("f(Tensor x, float k) -> Tensor", {"x": torch.ones(3), "k": 1.0})) == "k"
    assert draws.alike(one, laid_out("f(Tensor x, float k) -> Tensor", {"x": torch.ones(4), "k": float("nan")})) == "x"
