"""The texts of a task around an existing function: task.toml, and a reference.py with inputs of the right shapes.

Owns the small command-line forms ("m=1,16 n=4096", "x=m,n"). Must not write files.
"""

from __future__ import annotations

import ast
import itertools
import re
from pathlib import Path

from msgspec import Struct

from keepfast import dtypes, expr
from keepfast.errors import TaskError, UsageError, nearest
from keepfast.model import Arg, Signature
from keepfast.task.adapter import Match
from keepfast.task.signature import reserved
from keepfast.task.tunables import literal

MAX_CASES = 64
SECTIONS = ("-ffunction-sections", "-Wl,--gc-sections")  # so that functions of the file that nobody calls need no other files
Pairs = tuple[tuple[str, str], ...]
_FORMS = {"--shape": '"x=m,n" or "x=m,n//2"', "--arg": '"x=bf16[m,n]" or "x=bf16[m,n//2]"'}


class Facts(Struct, frozen=True):
    """What task.toml says."""

    title: str
    signature: str
    root: str
    entry: str
    editable: str
    axes: tuple[str, ...]
    cases: tuple[tuple[int, ...], ...]
    outputs: Pairs
    reduction: str
    frozen: bool
    flags: tuple[str, ...]
    libs: tuple[str, ...]
    sources: tuple[str, ...]
    include: tuple[str, ...]
    readable: tuple[str, ...]


class Arrays(Struct, frozen=True):
    """Arguments and outputs with element types and shapes."""

    signature: Signature
    dtypes: Pairs
    shapes: tuple[tuple[str, tuple[str, ...]], ...]


class Oracle(Struct, frozen=True):
    path: Path
    function: str
    relative: str  # seen from the task folder
    axes: tuple[str, ...]
    returned: str = ""  # the output that the C function returns, or ""


# --------------------------------------------------------------------------------------------- command-line forms


def pairs(texts: tuple[str, ...], option: str) -> Pairs:
    """ "a=b" as (a, b)."""
    for text in texts:
        if not re.fullmatch(r"\s*\w+\s*=[^=]+", text):
            raise UsageError(f"`{text}` is not of the form NAME=VALUE", where=option)
    return tuple((t.partition("=")[0].strip(), t.partition("=")[2].strip()) for t in texts)


def cases(texts: tuple[str, ...], option: str = "--case") -> tuple[tuple[str, ...], tuple[tuple[int, ...], ...]]:
    """Axis names, and the values of each case: of every text the product of its values."""
    if not texts:
        raise UsageError("at least one case is needed", next_step='--case "m=1,16 n=4096" makes two cases')
    found: list[tuple[int, ...]] = []
    axes: tuple[str, ...] = ()
    for text in texts:
        table = case(text, option)
        axes = axes or tuple(table)
        for name in {*axes, *table}:
            if name not in table or name not in axes:
                raise UsageError(f"`{text}` does not bind the same axes as `{texts[0]}`: `{name}`", where=option)
        found += itertools.product(*(table[axis] for axis in axes))
    if len(found) > MAX_CASES:
        raise UsageError(f"{len(found)} cases; at most {MAX_CASES}", where=option)
    return axes, tuple(dict.fromkeys(found))


def case(text: str, option: str = "--case") -> dict[str, tuple[int, ...]]:
    """ "m=1,16 n=4096" as its axes with their values."""
    table: dict[str, tuple[int, ...]] = {}
    for word in text.split():
        if not re.fullmatch(r"\w+=\d{1,13}(,\d{1,13})*", word, re.ASCII):
            raise UsageError(f"`{word}` is not of the form AXIS=VALUE,VALUE", where=option, next_step=f'{option} "m=1,16 n=4096"')
        name, _, values = word.partition("=")
        why = reserved(name) or (f"`{name}` is bound twice" if name in table else None)
        if why:
            raise UsageError(why, where=option)
        table[name] = tuple(int(v) for v in values.split(","))
    return table


def shapes(
    texts: tuple[str, ...], matched: Match, axes: tuple[str, ...], values: tuple[tuple[int, ...], ...]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Dimensions of every tensor, each an expression over the axes that is a whole number above 0 in every case."""
    tensors = tuple(name for name, _ in matched.dtypes)
    given = {name: tuple(d.strip() for d in dims.split(",")) for name, dims in pairs(texts, "--shape")}
    for name, dims in given.items():
        if name not in tensors:
            step = f"Tensors: {', '.join(tensors)}"
            raise UsageError(f"no tensor is called `{name}`.{nearest(name, tensors)}", where="--shape", next_step=step)
        for dim in dims:
            dimension(name, dim, (axes, values), "--shape")
    default = axes or ("1",)
    return tuple((name, given.get(name, ("1",) if name == matched.returned else default)) for name in tensors)


def dimension(name: str, dim: str, cases: tuple[tuple[str, ...], tuple[tuple[int, ...], ...]], option: str) -> tuple[int, ...]:
    """The size that `dim` is in each of the cases: an expression over the axes, a whole number above 0."""
    axes, values = cases
    if not re.fullmatch(r"[\w\s+\-*/%()]+", dim, re.ASCII):
        raise UsageError(f"`{dim}` of `{name}` is no size", where=option, next_step=f"{option} {_FORMS[option]}")
    try:
        parsed = expr.parse(dim, axes)
        sizes = [parsed.value(dict(zip(axes, case, strict=True))) for case in values]
    except expr.ExprError as problem:
        raise UsageError(problem.what, where=option) from None
    if not all(isinstance(size, int) and size > 0 for size in sizes):
        raise UsageError(f"`{dim}` of `{name}` is not a whole number above 0 in every case", where=option, next_step="Divide with //")
    return tuple(int(size) for size in sizes)


# --------------------------------------------------------------------------------------------- task.toml


def task_text(facts: Facts) -> str:
    """task.toml, ready to run."""
    lines = [
        "# Every key: docs/tasks.md",
        "schema = 1",
        f"title = {literal(facts.title)}",
        f"signature = {literal(facts.signature)}",
        f"root = {literal(facts.root)}{'':10}# the repository; the paths below are relative to it",
        f"entry = {literal(facts.entry)}    # yours: calls the function with its own arguments",
        f"editable = {_list((facts.editable,))}    # what may be changed",
        f"axes = {_list(facts.axes)}",
        "threads = 1",
    ]
    if facts.frozen:
        lines += ['oracle = "frozen"    # the sources as they were, in frozen/: same as before, not proven right']
    for case in facts.cases:
        lines += ["", "[[case]]", *(f"{axis} = {value}" for axis, value in zip(facts.axes, case, strict=True))]
    lines += ["", "[goal]", "speedup = 1.2", 'over = "start"    # the function as it is now']
    flags = (*facts.flags, *(flag for flag in SECTIONS if flag not in facts.flags))
    lines += ["", "[build]", f"flags = {_list(flags)}    # with the last two, only what is called is linked", f"libs = {_list(facts.libs)}"]
    for name in ("sources", "include", "readable"):
        if getattr(facts, name):
            lines.append(f"{name} = {_list(getattr(facts, name))}")
    if facts.outputs:
        lines += ["", "[arguments]", *(f"{name} = {{ dtype = {literal(dtype)} }}" for name, dtype in facts.outputs)]
    if facts.reduction:
        lines += ["", "[tolerance]", f"reduction = {literal(facts.reduction)}    # a guess: how many terms are summed for one element"]
    return "\n".join([*lines, ""])


def reduction(arrays: Arrays, axes: tuple[str, ...]) -> str:
    """A guess at the reduction length: the axes that no result has. "" when there are none, or no result is floating."""
    types, sizes, results = dict(arrays.dtypes), dict(arrays.shapes), arrays.signature.results
    if not any(dtypes.by_name(types[name]).is_float for name in results):
        return ""
    return "*".join(a for a in axes if not any(a in re.findall(r"\w+", dim) for name in results for dim in sizes[name]))


def _list(values: tuple[str, ...]) -> str:
    return f"[{', '.join(literal(v) for v in values)}]"


# --------------------------------------------------------------------------------------------- reference.py


def frozen_reference(arrays: Arrays) -> str:
    """Inputs only, and how large fresh outputs are: the frozen sources give the values."""
    head = '"""Inputs. The expected results come from the sources in frozen/: same as before, not proven right."""\n'
    outputs = _outputs(arrays) if arrays.signature.outputs else ""
    return f"{head}\nimport numpy as np\n\n\n{_inputs(arrays)}{outputs}"


def oracle_reference(arrays: Arrays, oracle: Oracle) -> str:
    """Inputs, and a reference that calls the NumPy function where it stands."""
    names = ", ".join(a.name for a in arrays.signature.args)
    call = _as_declared(f"_module.{oracle.function}({_call(arrays, oracle)})", arrays, oracle)
    return _ORACLE.format(name=oracle.path.name, path=literal(oracle.relative), inputs=_inputs(arrays), names=names, call=call)


_ORACLE = '''\
"""Inputs, and the right answer from {name}."""

import importlib.util
import sys
from pathlib import Path

import numpy as np

ORACLE = (Path(__file__).resolve().parent / {path}).resolve()
sys.path.insert(0, str(ORACLE.parent))  # for what it imports itself
_spec = importlib.util.spec_from_file_location("oracle_of_this_task", ORACLE)
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)


{inputs}

def reference({names}):
    """Called in the working precision, and with floating inputs in float64."""
    return {call}
'''


def _as_declared(call: str, arrays: Arrays, oracle: Oracle) -> str:
    """The call in the shape of a returned number, and in the element type of a single integer output."""
    results = arrays.signature.results
    dtype = dtypes.by_name(dict(arrays.dtypes)[results[0]])
    if len(results) > 1:
        return call
    shaped = f"np.reshape({call}, (1,))" if results[0] == oracle.returned else call
    return shaped if dtype.is_float else f"np.asarray({shaped}).astype(np.{_numpy(dtype.name)})"


def _inputs(arrays: Arrays) -> str:
    lines = [f"        {a.name!r}: {_content(a, arrays)},\n" for a in arrays.signature.args]
    doc = '    """Every argument in order, fresh from `rng` (a NumPy Generator). Change values and ranges to what is used."""\n'
    return f"def inputs(case, rng):\n{doc}    return {{\n{''.join(lines)}    }}\n".replace("'", '"')


def _outputs(arrays: Arrays) -> str:
    types = dict(arrays.dtypes)
    lines = [f'        "{r.name}": np.empty({_shape(r.name, arrays)}, np.{_numpy(types[r.name])}),\n' for r in arrays.signature.outputs]
    doc = '    """Shapes and element types of the outputs; the contents mean nothing."""\n'
    return f"\n\ndef outputs(case):\n{doc}    return {{\n{''.join(lines)}    }}\n"


def _content(arg: Arg, arrays: Arrays) -> str:
    if arg.kind == "tensor":
        return _array(arg.name, arrays)
    if arg.has_default:
        return repr(arg.default)
    if arg.optional:
        return "None"
    return {"int": "1", "float": "1.0", "bool": "False", "str": '""'}[arg.kind]


def _array(name: str, arrays: Arrays) -> str:
    dtype = dtypes.by_name(dict(arrays.dtypes)[name])
    shape = _shape(name, arrays)
    if dtype.name == "bool":
        return f"rng.random({shape}) < 0.5"
    if dtype.is_float:
        fast = dtype.name in ("float32", "float64")
        return f"rng.standard_normal({shape}, np.{dtype.name})" if fast else f"rng.standard_normal({shape}).astype(np.{_numpy(dtype.name)})"
    return f"rng.integers(0, 100, {shape}, np.{dtype.name})"


def _shape(name: str, arrays: Arrays) -> str:
    dims = [re.sub(r"[A-Za-z_]\w*", lambda m: f"case.{m[0]}", d) for d in dict(arrays.shapes)[name]]
    return f"({', '.join(dims)}{',' if len(dims) == 1 else ''})"


def _numpy(name: str) -> str:
    found = dtypes.by_name(name).numpy
    if found is None:
        raise TaskError(f"NumPy has no {name}: write inputs() by hand", where="--dtype")
    return "bool_" if found == "bool" else found


def _call(arrays: Arrays, oracle: Oracle) -> str:
    """Arguments for the oracle: by name where all its parameters are known, else in order."""
    args = tuple(a.name for a in arrays.signature.args)
    wanted, required = _parameters(oracle)
    sizes = _sizes(arrays, oracle.axes)
    known = [name for name in wanted if name in args or name in sizes]
    if all(name in known for name in required):
        return ", ".join(f"{name}={name if name in args else sizes[name]}" for name in known)
    if len(required) <= len(args) <= len(wanted):
        return ", ".join(args)
    what = f"`{oracle.function}` takes {', '.join(wanted) or 'nothing'}; the signature has {', '.join(args) or 'nothing'}"
    raise UsageError(what, where="--oracle", next_step="Give them the same names, or the same number")


def _parameters(oracle: Oracle) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """All parameters of the oracle, and those without a default."""
    try:
        tree = ast.parse(oracle.path.read_bytes())
    except (SyntaxError, ValueError) as problem:
        raise UsageError(f"not Python: {problem}", where=str(oracle.path)) from None
    functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
    if oracle.function not in functions:
        hint = nearest(oracle.function, tuple(functions))
        raise UsageError(f"no function `{oracle.function}` is defined.{hint}", where=str(oracle.path))
    spec = functions[oracle.function].args
    plain = [a.arg for a in (*spec.posonlyargs, *spec.args)]
    optional = plain[len(plain) - len(spec.defaults) :] if spec.defaults else []
    keyword = [a.arg for a, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if default is None]
    return (*plain, *(a.arg for a in spec.kwonlyargs)), (*(p for p in plain if p not in optional), *keyword)


def _sizes(arrays: Arrays, axes: tuple[str, ...]) -> dict[str, str]:
    """For each axis, where an argument shows it: {"n": "x.shape[1]"}."""
    tensors = [a.name for a in arrays.signature.tensors if not a.optional]
    found: dict[str, str] = {}
    for name in tensors:
        for i, dim in enumerate(dict(arrays.shapes)[name]):
            if dim in axes:
                found.setdefault(dim, f"{name}.shape[{i}]")
    return found
