"""A Python function as it is written: what it takes, what it returns, how it is called. Read as text, never imported.

Must not know repositories or what arguments will be drawn.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from keepfast.errors import UsageError, nearest

KERNELS = (("triton.jit", "triton"), ("cute.kernel", "cute"), ("cute.jit", "cute"), ("gluon.jit", "triton"))  # decorator, language
Scalar = bool | int | float | str | None
_SCALARS = ("int", "float", "bool", "str")
_TENSORS = ("Tensor", "torch.Tensor", "torch.FloatTensor", "torch.LongTensor", "torch.IntTensor", "torch.nn.Parameter", "nn.Parameter")
_VIEWS = ("view", "reshape", "contiguous", "flatten", "squeeze", "unsqueeze", "view_as", "detach")
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Parameter(Struct, frozen=True):
    """`kind`: tensor, int, float, bool, str, "" when nothing is said, or "other". `literal`: whether the default is a scalar."""

    name: str
    kind: str = ""
    keyword: bool = False
    positional: bool = False
    has_default: bool = False
    literal: bool = False
    default: Scalar = None


class Function(Struct, frozen=True):
    """`call`: what a caller writes before the parentheses. `returned`: for each value its name or "", None when nobody can say;
    `back`: those that are parameters handed back."""

    name: str
    call: str
    line: int
    parameters: tuple[Parameter, ...]
    returned: tuple[str, ...] | None
    back: tuple[str, ...] = ()
    any_keyword: bool = False  # takes **kwargs


def parsed(text: str, path: Path) -> ast.Module:
    try:
        return ast.parse(text, str(path))
    except (SyntaxError, ValueError) as problem:
        raise UsageError(f"not Python: {problem}", where=str(path)) from None


def text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UsageError("not UTF-8", where=str(path)) from None


def classes(text: str, path: Path) -> tuple[str, ...]:
    """Names that the file binds at its top level to a class, or imports or assigns."""
    found = []
    for node in _top(parsed(text, path).body):
        if isinstance(node, ast.ClassDef):
            found.append(node.name)
        elif isinstance(node, ast.Assign):
            found += [t.id for t in node.targets if isinstance(t, ast.Name)]
        elif isinstance(node, ast.ImportFrom):
            found += [a.asname or a.name for a in node.names]
    return tuple(found)


def language(text: str) -> str:
    """The language of the kernels that the file has, `torch` when it has none."""
    for node in ast.walk(ast.parse(text)):
        for decorator in node.decorator_list if isinstance(node, _Function) else ():
            found = _kernel_language(decorator)
            if found:
                return found
        if isinstance(node, ast.Call) and (found := _kernel_language(node.func)):
            return found  # kernel = triton.jit(kernel)
    return "torch"


def runs(text: str) -> tuple[tuple[int, str], ...]:
    """Statements that do something when the file is imported: calls whose result nobody keeps, assertions, loops. (line, statement)"""
    busy = (n for n in _top(ast.parse(text).body) if isinstance(n, ast.Assert | ast.For | ast.While | ast.With) or _is_call(n))
    return tuple((n.lineno, ast.unparse(n).partition("\n")[0][:80]) for n in busy)


def _is_call(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)


def read(path: Path, name: str) -> Function:
    """The function `name`, `Class.function`, or the class of an autograd.Function. UsageError with what there is."""
    tree = parsed(text_of(path), path)
    outer, _, inner = name.partition(".")
    found = next((n for n in _top(tree.body) if isinstance(n, ast.ClassDef | _Function) and n.name == outer), None)
    if isinstance(found, ast.ClassDef):
        return _of_class(found, inner, path)
    if found is None or inner:
        known = tuple(n.name for n in _top(tree.body) if isinstance(n, ast.ClassDef | _Function))
        step = f"It defines {', '.join(known[:12]) or 'nothing'}"
        raise UsageError(f"no function `{name}` is defined.{nearest(outer, known)}", where=str(path), next_step=step)
    if any(_kernel_language(d) for d in found.decorator_list) or _wrapped(tree, outer):
        launchers = ", ".join(_launchers(tree, outer)) or "not in this file"
        step = f"Functions that launch it: {launchers}"
        raise UsageError(f"`{name}` is a kernel: name the function that launches it", where=f"{path}:{found.lineno}", next_step=step)
    return _function(found, name, name, skip=0)


def _top(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of the top level, those under `if` and `try` among them, but not under `if __name__ == ...`."""
    for node in body:
        if isinstance(node, ast.If):
            if "__name__" not in ast.unparse(node.test):
                yield from _top((*node.body, *node.orelse))
        elif isinstance(node, ast.Try):
            yield from _top((*node.body, *(s for h in node.handlers for s in h.body), *node.orelse, *node.finalbody))
        else:
            yield node


def _of_class(found: ast.ClassDef, inner: str, path: Path) -> Function:
    methods = {n.name: n for n in found.body if isinstance(n, _Function)}
    where = f"{path}:{found.lineno}"
    if any(ast.unparse(base).endswith("Function") for base in found.bases) and inner in ("", "apply", "forward"):
        forward = methods.get("forward")
        if forward is None:
            raise UsageError(f"`{found.name}` has no forward()", where=where)
        setup = "setup_context" in methods
        return _function(forward, found.name, f"{found.name}.apply", skip=0 if setup else 1)
    method = methods.get(inner)
    if method is None or not any(ast.unparse(d) == "staticmethod" for d in method.decorator_list):
        what = f"`{found.name}{'.' + inner if inner else ''}` is called through an object, whose tensors would be no arguments"
        step = "Write a function of its tensors that calls it, in the same file, and name that; a KernelBench module: --kernelbench FILE"
        raise UsageError(what, where=where, next_step=step)
    return _function(method, inner, f"{found.name}.{inner}", skip=0)


def _kernel_language(decorator: ast.AST) -> str:
    text = ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator)
    return next((name for ending, name in KERNELS if text == ending or text.endswith(f".{ending}")), "")


def _wrapped(tree: ast.Module, name: str) -> bool:
    """Whether the file makes a kernel of the function later: `f = triton.jit(f)`."""
    assigned = [n.value for n in _top(tree.body) if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == name]
    return any(isinstance(n, ast.Call) and _kernel_language(n.func) for v in assigned for n in ast.walk(v))


def _launchers(tree: ast.Module, kernel: str) -> Iterator[str]:
    """Functions that say `kernel[grid](...)`."""
    for node in ast.walk(tree):
        if isinstance(node, _Function) and any(isinstance(n, ast.Subscript) and ast.unparse(n.value) == kernel for n in ast.walk(node)):
            yield node.name


# --------------------------------------------------------------------------------------------- one function


def _function(node: _Function, name: str, call: str, *, skip: int) -> Function:
    """`skip`: leading parameters that a caller does not say, as `ctx`."""
    spec = node.args
    plain = [*spec.posonlyargs, *spec.args]
    defaults: list[ast.expr | None] = [*[None] * (len(plain) - len(spec.defaults)), *spec.defaults]
    parameters = [_parameter(a, d, keyword=False) for a, d in zip(plain, defaults, strict=True)][skip:]
    only = len(spec.posonlyargs) - skip if not call.endswith(".apply") else len(parameters)  # apply() takes no keywords
    parameters = [_only(p) if i < only else p for i, p in enumerate(parameters)]
    parameters += [_parameter(a, d, keyword=True) for a, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True)]
    returned, back = _returned(node, tuple(p.name for p in parameters))
    return Function(name, call, node.lineno, tuple(parameters), returned, back, spec.kwarg is not None)


def _only(parameter: Parameter) -> Parameter:
    return Parameter(
        parameter.name, parameter.kind, False, True, parameter.has_default, parameter.literal, parameter.default
    )  # fmt: skip


def _parameter(arg: ast.arg, default: ast.expr | None, *, keyword: bool) -> Parameter:
    literal, value = _literal(default)
    kind = _kind(arg.annotation)
    if not kind and literal and value is not None:
        kind = type(value).__name__
    return Parameter(arg.arg, kind, keyword, False, default is not None, literal, value)


def _literal(node: ast.expr | None) -> tuple[bool, Scalar]:
    if node is None:
        return False, None
    try:
        value = ast.literal_eval(node)
    except (ValueError, SyntaxError, TypeError):
        return False, None
    return (True, value) if isinstance(value, bool | int | float | str | None) else (False, None)


def _kind(annotation: ast.expr | None) -> str:
    """tensor, a scalar, "" for none, "other". Optional kinds count as what they may be."""
    if annotation is None:
        return ""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            return _kind(ast.parse(annotation.value, mode="eval").body)
        except SyntaxError:
            return "other"
    names = [n for n in _alternatives(annotation) if n != "None"]
    if len(names) == 1 and names[0] in _SCALARS:
        return names[0]
    return "tensor" if names and all(n in _TENSORS for n in names) else "other"


def _alternatives(annotation: ast.expr) -> list[str]:
    """`Optional[X]`, `Union[X, None]` and `X | None` as their members."""
    if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
        return _alternatives(annotation.left) + _alternatives(annotation.right)
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value).rpartition(".")[2] in ("Optional", "Union"):
        inner = annotation.slice
        return [n for e in (inner.elts if isinstance(inner, ast.Tuple) else [inner]) for n in _alternatives(e)]
    return [ast.unparse(annotation)]


def _returned(node: _Function, parameters: tuple[str, ...]) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """Names of what it returns, "" for what has none; and which are parameters, handed back as they came or as views of themselves."""
    values = [n.value for n in _own(node) if isinstance(n, ast.Return) and n.value is not None and not _is_none(n.value)]
    if not values:
        return (), ()
    tuples = [v for v in values if isinstance(v, ast.Tuple)]
    said = _arity(node.returns)
    if not tuples:
        if said != 1 or len({ast.dump(v) for v in values}) > 1:
            return (None if said is None else ("",) * said), ()
        return ("" if not isinstance(values[0], ast.Name) else values[0].id,), _back(node, values, parameters)
    elements = tuples[-1].elts
    return tuple(e.id if isinstance(e, ast.Name) else "" for e in elements), _back(node, elements, parameters)


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """Nodes of a function, without those of functions in it."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, _Function | ast.Lambda | ast.ClassDef):
            yield from _own(child)


def _arity(annotation: ast.expr | None) -> int | None:
    """How many tensors the annotation promises: 1 when it says nothing, None when it cannot be told."""
    if annotation is None or _kind(annotation) == "tensor":
        return 1
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value).rpartition(".")[2] in ("tuple", "Tuple"):
        inner = annotation.slice
        elements = inner.elts if isinstance(inner, ast.Tuple) else [inner]
        return None if any(isinstance(e, ast.Constant) for e in elements) else len(elements)
    return None


def _back(node: _Function, elements: Sequence[ast.expr], parameters: tuple[str, ...]) -> tuple[str, ...]:
    """Returned parameters that the function binds to nothing but views of themselves."""
    names = {e.id for e in elements if isinstance(e, ast.Name) and e.id in parameters}
    for child in _own(node):
        targets = (
            child.targets if isinstance(child, ast.Assign) else [child.target] if isinstance(child, ast.AugAssign | ast.AnnAssign) else []
        )
        for target in targets:
            for part in target.elts if isinstance(target, ast.Tuple) else [target]:
                if isinstance(part, ast.Name) and part.id in names and not _is_view(getattr(child, "value", None), part.id):
                    names.discard(part.id)
    return tuple(n for n in parameters if n in names)


def _is_view(value: ast.expr | None, name: str) -> bool:
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _VIEWS:
        value = value.func.value
    return isinstance(value, ast.Name) and value.id == name
