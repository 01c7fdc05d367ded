"""How the operator of a `--op` task is called, read from baselines/op.py, so that a package can take its place.

The file is the human's and only parsed. Must not know torch.
"""

from __future__ import annotations

import ast
from typing import Any

from msgspec import Struct

from keepfast.model import Signature

PREFIX = "torch.ops."


class Override(Struct, frozen=True):
    """`op` as torch names it, aten::_softmax or NS::NAME.overload. Places are ["arg", name], ["const", value], ["size", [name, i]] or
    ["list", places]; `order`: the task's arguments; `defaults`: of those that the task does not name."""

    op: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    order: tuple[str, ...]
    defaults: dict[str, Any] = {}


def read(text: str, signature: Signature) -> Override | None:
    """The one call of torch.ops in the file, or None when there is none that can be said in these words."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return None
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and ast.unparse(n.func).startswith(PREFIX)]
    if len(calls) != 1:
        return None
    names = tuple(a.name for a in signature.args)
    args = [_place(a, names) for a in calls[0].args]
    kwargs = {k.arg or "": _place(k.value, names) for k in calls[0].keywords}
    if None in args or None in kwargs.values() or "" in kwargs:
        return None
    used = {p[1] for p in (*args, *kwargs.values()) if p and p[0] == "arg"}
    if used != set(names):
        return None
    return Override(_named(ast.unparse(calls[0].func)), tuple(args), kwargs, names)


def _named(text: str) -> str:
    space, name, *overload = text.removeprefix(PREFIX).split(".")
    suffix = f".{overload[0]}" if overload and overload[0] != "default" else ""
    return f"{space}::{name}{suffix}"


def _place(node: ast.expr, names: tuple[str, ...]) -> list[Any] | None:
    if isinstance(node, ast.Name):
        return ["arg", node.id] if node.id in names else None
    if isinstance(node, ast.List | ast.Tuple):
        items = [_place(item, names) for item in node.elts]
        return None if None in items else ["list", items]
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
        return _size(node, names)
    try:
        return ["const", ast.literal_eval(node)]
    except ValueError:
        return None


def _size(node: ast.Subscript, names: tuple[str, ...]) -> list[Any] | None:
    owner = node.value.value if isinstance(node.value, ast.Attribute) else None
    try:
        index = ast.literal_eval(node.slice)
    except ValueError:
        return None
    return ["size", [owner.id, index]] if isinstance(owner, ast.Name) and owner.id in names and isinstance(index, int) else None
