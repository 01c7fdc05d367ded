"""Generated files: from the signature and the table to the texts of templates/.

Pure. Must not know where files lie, nor anything of torch but its words.
"""

from __future__ import annotations

import importlib.resources
import itertools
import re
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from keepfast.dispatch import text
from keepfast.dispatch.operator import Override
from keepfast.dispatch.records import Argument, Dim, Table
from keepfast.dispatch.shapes import places
from keepfast.errors import UsageError
from keepfast.model import Arg, Task
from keepfast.task.abi import Word

ALIGN = 64  # as in templates/router.py.txt
CALLED = {"float8_e8m0": "float8_e8m0fnu", "float4_e2m1": "uint8"}  # where torch calls a type otherwise


class Body(Struct, frozen=True):
    """One implementation. kind: native (C or CUDA), torch (returns its results), numpy (is given them). `checked`: it is stock, which is
    called with whatever comes."""

    kind: str
    name: str
    module: str = ""
    symbol: str = ""
    folder: str = ""
    argv: tuple[str, ...] = ()
    words: tuple[Word, ...] = ()
    checked: bool = False


class Facts(Struct, frozen=True):
    task: Task
    table: Table
    package: str
    kernel: Body
    stock: Body
    hub: str = ""
    override: Override | None = None

    @property
    def op(self) -> str:
        return self.task.signature.name

    @property
    def switch(self) -> str:
        return re.sub(r"\W", "_", self.package).upper() + "_ROUTE"

    @property
    def axes(self) -> dict[str, str]:
        return {axis: f"{name}.shape[{i}]" for axis, (name, i) in places(self.table.arguments)}

    @property
    def tensors(self) -> tuple[Argument, ...]:
        return tuple(a for a in self.table.arguments if a.kind == "tensor")


def plain(name: str) -> str:
    return (importlib.resources.files("keepfast.dispatch") / "templates" / name).read_text(encoding="utf-8")


def filled(name: str, **values: object) -> str:
    """The template with its values; a name that is not there is an error of ours."""
    from jinja2 import Environment, StrictUndefined

    made = Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined, autoescape=False)
    return made.from_string(plain(name)).render(**values)


def init(facts: Facts) -> str:
    title, where = _quiet(facts.task.title), _quiet("; ".join(text.regions(facts.table)))
    return filled("init.py.j2", title=title, where=where, package=facts.package, op=facts.op, switch=facts.switch)


# --------------------------------------------------------------------------------------------- the operator


def operator(facts: Facts) -> str:
    """_op.py."""
    signature, named = facts.task.signature, {a.name: a for a in facts.table.arguments}
    fresh = [r.name for r in signature.outputs]
    owners = {a.alias: a.name for a in signature.args if a.alias}
    returned = [owners.get(r.alias, r.name) for r in signature.returns]
    there = [a.name for a in facts.tensors if a.present]
    by_stock = any(d.kind == "free" and d.low != d.high for o in facts.table.outputs for d in o.dims)
    if by_stock and facts.stock.kind != "torch":
        raise UsageError("no size of an argument tells the size of an output, so the operator cannot be described", where=facts.task.name)
    written = [a.name for a in facts.tensors if a.written]
    return filled(
        "op.py.j2",
        op=facts.op,
        signature=_quiet(signature.text),
        parameters=", ".join(_parameter(a) for a in signature.args),
        names=_names(facts),
        where=f"    {_quiet('; '.join(text.regions(facts.table)))}",
        tensors=[a.name for a in facts.tensors],
        wants_grad=" or ".join(_if_there(a, f"{a.name}.requires_grad") for a in facts.tensors),
        plain=lambda name: _if_there(named[name], f"type({name}) not in _PLAIN"),
        key=_key(facts),
        about=_about(facts, there),
        there=there,
        absent=[a.name for a in facts.tensors if not a.present],
        align=ALIGN,
        written=written,
        sizes="".join(f"s{i}, " for i in range(len(there))).rstrip(),
        pairs=[(i, j) for i, j in itertools.combinations(range(len(there)), 2) if there[i] in written or there[j] in written],
        returned=returned,
        fresh=fresh,
        simple=returned == fresh,
        schema_outputs=len(fresh),
        schema=_schema(facts),
        namespace=facts.package,
        hub=facts.hub,
        fake_by_stock=by_stock,
        fake_fits=" and ".join(_fits(facts.tensors)),
        stock_traces=facts.stock.kind == "torch",
        axes=_axes_of(facts, facts.table.outputs),
        outputs=_outputs(facts) if not by_stock else [],
        first=there[0] if there else "",
    )


def _names(facts: Facts) -> str:
    return ", ".join(a.name for a in facts.task.signature.args)


def _parameter(arg: Arg) -> str:
    return f"{arg.name}={arg.default!r}" if arg.has_default else arg.name


def _if_there(argument: Argument, test: str) -> str:
    return test if argument.present else f"({argument.name} is not None and {test})"


def _key(facts: Facts) -> str:
    """What tells kinds of calls apart, as an expression. A float's value is not looked at, only that it is a number."""
    parts = []
    for a in facts.table.arguments:
        if a.kind != "tensor":
            parts.append(f"type({a.name})" if a.kind == "float" else a.name)
        else:
            about = [f"{a.name}.shape", f"{a.name}.dtype", f"{a.name}.get_device()", f"{a.name}.is_contiguous()"]
            parts += about if a.present else [f"None if {a.name} is None else ({', '.join(about)})"]
    return f"({', '.join(parts)},)"


def _about(facts: Facts, there: list[str]) -> str:
    """What is looked up before one look at the tensors: bytes of the first, and scalars as `_key` has them. Never equal to a key."""
    scalars = [f"type({a.name})" if a.kind == "float" else a.name for a in facts.table.arguments if a.kind != "tensor"]
    first = f"{there[0]}.nbytes" if there else "0"
    return f"({first}, {', '.join(scalars)})" if scalars else first


def _schema(facts: Facts) -> str:
    """The operator's schema: arguments as they are, fresh outputs alone (an operator may not hand an argument back)."""
    kinds = {"tensor": "Tensor", "int": "int", "float": "float", "bool": "bool", "str": "str"}
    found = []
    for i, a in enumerate(facts.task.signature.args):
        mark = f"({chr(ord('a') + i)}!)" if a.written else ""
        default = f"={_literal(a.default)}" if a.has_default else ""
        found.append(f"{kinds[a.kind]}{mark}{'?' if a.optional else ''} {a.name}{default}")
    count = len(facts.task.signature.outputs)
    returns = "()" if not count else "Tensor" if count == 1 else f"({', '.join(['Tensor'] * count)})"
    return f"{facts.op}({', '.join(found)}) -> {returns}".replace('"', '\\"')


def _literal(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def _fits(tensors: Iterable[Argument]) -> list[str]:
    """Tests that a fake passes whose shapes and types are those of the table, ranges aside."""
    found = []
    for a in tensors:
        if not a.present:
            found.append(f"{a.name} is None")
            continue
        found += [f"{a.name} is not None", f"{a.name}.dim() == {len(a.dims)}", f"{a.name}.dtype == {dtype(a.dtype)}"]
        found += [f"{a.name}.shape[{i}] == {d.low}" for i, d in enumerate(a.dims) if d.kind == "free" and d.low == d.high]
    return found or ["True"]


# --------------------------------------------------------------------------------------------- an implementation


def call(facts: Facts, body: Body, doc: str) -> str:
    """_kernel.py or _stock.py."""
    there = [a.name for a in facts.tensors if a.present]
    native = body.kind == "native"
    needed = facts.task.axes if native else ()
    unread = next((axis for axis in needed if axis not in facts.axes), "")
    if unread:
        raise UsageError(f"no argument tells `{unread}`, which the kernel is given", where=facts.task.name, next_step="Give it an argument")
    axes = [(a, facts.axes[a]) for a in needed] if native else _axes_of(facts, facts.table.outputs) if body.kind == "numpy" else []
    return filled(
        "call.py.j2",
        doc=doc,
        body=_body(facts, body),
        names=_names(facts),
        device=facts.table.device,
        axes=axes,
        outputs=_outputs(facts),
        written=[a.name for a in facts.tensors if a.written],
        first=there[0] if there else "",
    )


def _body(facts: Facts, body: Body) -> dict[str, Any]:
    known = {a.name: a for a in facts.table.arguments}
    return {
        "kind": body.kind,
        "name": body.name,
        "module": body.module,
        "symbol": body.symbol,
        "folder": body.folder,
        "argv": repr(list(body.argv)),
        "checked": body.checked,
        "replaced": body.checked and facts.override is not None and not facts.hub,
        "words": [_word(word, known, facts.table.device) for word in body.words],
        "keeps": any(w.kind == "str" or (w.optional and w.kind != "tensor") for w in body.words),
        "arrays": [*(_array(a) for a in facts.table.arguments), *(_array(o) for o in facts.table.outputs)],
    }


def _word(word: Word, known: dict[str, Argument], device: str) -> str:
    """One 64-bit word of a call."""
    if word.kind == "tensor":
        there = word.name not in known or known[word.name].present
        return f"{word.name}.data_ptr()" if there else "0"
    if word.kind == "stream":
        return "torch.cuda.current_stream().cuda_stream" if device == "cuda" else "0"
    if word.kind == "str" or word.optional:
        return f'_native.held(_keep, {word.name}, "{word.kind}")'
    return f"_native.bits({word.name})" if word.kind == "float" else f"int({word.name})"


def _array(argument: Argument) -> str:
    if argument.kind != "tensor":
        return argument.name
    array = f"{argument.name}.detach().numpy()"
    return array if argument.present else f"None if {argument.name} is None else {array}"


def _outputs(facts: Facts) -> list[dict[str, str]]:
    """Fresh outputs: name, shape and type as expressions. `follows`: the type when arguments come in another than was measured."""
    lead = next((a for a in facts.tensors if a.present), None)
    found = []
    for out in facts.table.outputs:
        shape = "".join(f"{_size(facts, d)}, " for d in out.dims).rstrip()
        follows = f"{lead.name}.dtype" if lead is not None and lead.dtype == out.dtype else dtype(out.dtype)
        found.append({"name": out.name, "shape": f"({shape})", "dtype": dtype(out.dtype), "follows": follows})
    return found


def _size(facts: Facts, dim: Dim) -> str:
    if dim.kind == "free":
        return str(dim.low)
    if dim.kind == "product":
        return f"{dim.axis} * {dim.other}"
    scaled = f"{dim.times} * {dim.axis}" if dim.times > 1 else dim.axis
    return f"-(-({scaled}) // {dim.over})" if dim.over > 1 else scaled


def _axes_of(facts: Facts, outputs: Iterable[Argument]) -> list[tuple[str, str]]:
    used = {axis for o in outputs for d in o.dims for axis in (d.axis, d.other) if axis}
    return [(axis, place) for axis, place in facts.axes.items() if axis in used]


def dtype(name: str) -> str:
    return f"torch.{CALLED.get(name, name)}"


def _quiet(words: str) -> str:
    """Foreign text inside a docstring: it can end no string and begin no escape."""
    return " ".join(words.split()).replace("\\", "/").replace('"', "'")
