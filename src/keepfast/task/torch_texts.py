"""The texts that all tasks for a GPU share when they are written for somebody: task.toml, and inputs() in torch.

Must not know operators, functions or files.
"""

from __future__ import annotations

import re
import textwrap

from msgspec import Struct

from keepfast import dtypes
from keepfast.errors import UsageError
from keepfast.task.found import Found
from keepfast.task.given import Cases, Drawn, Fixed, Given, Named, Scalar
from keepfast.task.tunables import literal

WIDE = 120  # of a line of notes
_INPUTS = '''\
def inputs(case, rng):
    """Every argument in order, fresh from `rng` (a torch.Generator on the GPU). Change values and ranges to what is used."""
{here}    return {{
{lines}    }}
'''
_END = "    }\n"
_HERE = '    here = {"generator": rng, "device": rng.device}\n'


class Facts(Struct, frozen=True, kw_only=True):
    """What task.toml says. `shapes`: arguments with what is drawn for them, for the least work."""

    title: str
    signature: str
    languages: tuple[str, ...]
    entry: str
    cases: Cases
    over: str  # baseline | start
    editable: tuple[str, ...] = ("kernel/**",)
    root: str = ""
    frozen: str = ""  # what is right when the oracle is frozen, in words
    roles: tuple[tuple[str, str], ...] = ()
    readable: tuple[str, ...] = ()
    shapes: tuple[tuple[str, Given], ...] = ()
    reduction: str = ""
    notes: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()  # arguments whose draws are used as they are


def task_text(facts: Facts) -> str:
    """task.toml, ready to run."""
    lines = [*_noted(facts.notes), "# Every key: docs/tasks.md", "schema = 1", f"title = {literal(facts.title)}"]
    lines += [f"signature = {literal(facts.signature)}", f"languages = {_list(facts.languages)}"]
    if facts.root:
        lines.append(f"root = {literal(facts.root)}{'':10}# the repository; the paths below are relative to it")
    lines += [f"entry = {literal(facts.entry)}", f"editable = {_list(facts.editable)}    # what may be changed"]
    lines.append(f"axes = {_list(facts.cases.axes)}")
    if facts.frozen:
        lines.append(f'oracle = "frozen"    # {facts.frozen}: same as before, not proven right')
    for i, row in enumerate(facts.cases.timed):
        lines += _case(facts.cases.axes, row)
        lines += [f"weight = {facts.cases.weights[i]:.4g}    # share of the calls"] if facts.cases.weights else []
    for row in facts.cases.odd:
        lines += [*_case(facts.cases.axes, row), 'use = "correct"    # checked, not timed']
    roles = [f"{name} = {{ {said} }}" for name, role in facts.roles if (said := _argument(name, role, facts.whole))]
    lines += ["", "[arguments]", *roles] if roles else []
    why = "the fastest baseline that passes" if facts.over == "baseline" else "the function as it is now"
    lines += ["", "[goal]", "speedup = 1.2", f'over = "{facts.over}"    # {why}']
    if facts.readable:
        lines += ["", "[build]", f"readable = {_list(facts.readable)}    # what the entry imports"]
    if facts.reduction:
        lines += ["", "[tolerance]", f"reduction = {literal(facts.reduction)}    # a guess: how many terms are summed for one element"]
    lines += _least(facts.shapes)
    return "\n".join([*lines, ""])


def _case(axes: tuple[str, ...], row: tuple[int, ...]) -> list[str]:
    return ["", "[[case]]", *(f"{axis} = {value}" for axis, value in zip(axes, row, strict=True)), *([] if axes else ['name = "only"'])]


def _argument(name: str, role: str, whole: tuple[str, ...]) -> str:
    """What task.toml says of an argument, "" for nothing."""
    said = [f'role = "{role}"'] if role != "input" else []
    return ", ".join([*said, 'refresh = "whole"'] if name in whole else said)


def _noted(notes: tuple[str, ...]) -> list[str]:
    """Notes as comments."""
    found = [textwrap.wrap(note, WIDE, initial_indent="# note: ", subsequent_indent="#   ", break_on_hyphens=False) for note in notes]
    return [line for lines in found for line in lines] + ([""] if found else [])


def _least(shapes: tuple[tuple[str, Given], ...]) -> list[str]:
    """A suggestion for [limit], as a comment: whether every argument has to be read whole is for the human to say."""
    terms = [t for _, drawn in shapes if isinstance(drawn, Drawn) and (t := _bytes(drawn))]
    if not terms:
        return []
    head = "# The least that a call must move makes a case that is too fast to be true suspect. For a call that reads its arguments whole,"
    return ["", head, "# add what it writes, and take the marks away:", "# [limit]", f'# bytes = "{" + ".join(terms)}"']


def _bytes(drawn: Drawn) -> str:
    times = max(1, dtypes.by_name(drawn.dtype).bits // 8) * (2 if drawn.written else 1)
    factors = [dim if re.fullmatch(r"\w+", dim) else f"({dim})" for dim in drawn.dims]
    return "*".join([str(times), *factors])


def _list(values: tuple[str, ...]) -> str:
    one = f"[{', '.join(literal(v) for v in values)}]"
    return one if len(one) < WIDE else "[\n" + "".join(f"    {literal(v)},\n" for v in values) + "]"


# --------------------------------------------------------------------------------------------- reference.py


def inputs_text(given: tuple[tuple[str, Given], ...], found: Found | None = None) -> str:
    """inputs(case, rng) that draws what is given for each argument of the signature, and before it what `found` needs for that."""
    draws, head, merged = (found.draws, found.head, found.merged) if found is not None else ({}, "", "")
    lines = "".join(f'        "{name}": {draws.get(name) or content(name, one)},\n' for name, one in given)
    text = _INPUTS.format(here=_HERE if "**here" in lines else "", lines=lines)
    text = f"{text.removesuffix(_END)}    }} | {merged}\n" if merged else text
    return f"{head}\n\n{text}" if head else text


def content(name: str, given: Given) -> str:
    """One value as inputs() makes it."""
    if isinstance(given, Drawn):
        return _tensor(name, given)
    if isinstance(given, Fixed):
        return python(given.value)
    if isinstance(given, Named):
        raise UsageError(f"`{name}` is {given.text}, which a signature cannot have", where="--arg", next_step="Leave it out of --signature")
    raise UsageError(f"`{name}` is a list, which a signature cannot have", where="--arg", next_step="Name each element as an argument")


def _tensor(name: str, drawn: Drawn) -> str:
    kind, size, torch_name = dtypes.by_name(drawn.dtype), shape(drawn.dims), f"torch.{drawn.dtype}"
    if kind.name == "bool":
        return f"torch.rand({size}, **here) < 0.5"
    if kind.bits < 8 or kind.name == "float8_e8m0":
        raise UsageError(f"`{name}` is {kind.name}, which torch cannot draw", where="--arg", next_step="Say u8, and view it in inputs()")
    if kind.is_float:
        drawn_as = f"torch.randn({size}, dtype={torch_name if kind.bits >= 16 else 'torch.float32'}, **here)"
        return drawn_as if kind.bits >= 16 else f"{drawn_as}.to({torch_name})"
    low, high = ("0", _axis(drawn.below)) if drawn.below else ("-100" if kind.name == "int8" else "0", "100")
    whole = f"torch.randint({low}, {high}, {size}, dtype=torch.int64, **here)"
    return whole if kind.name == "int64" else f"{whole}.to({torch_name})"


def shape(dims: tuple[str, ...]) -> str:
    """A tuple of sizes as inputs() writes it."""
    return f"({', '.join(_axis(dim) for dim in dims)}{',' if len(dims) == 1 else ''})"


def _axis(dim: str) -> str:
    return re.sub(r"[A-Za-z_]\w*", lambda found: f"case.{found[0]}", dim)


def python(value: Scalar) -> str:
    """A scalar as Python writes it."""
    if isinstance(value, str):
        return literal(value)
    return f'float("{value}")' if isinstance(value, float) and repr(value).lstrip("-") in ("inf", "nan") else repr(value)


def default(value: Scalar) -> str:
    """A scalar as a signature writes it as a default."""
    if isinstance(value, str):
        return f'"{value}"' if '"' not in value else f"'{value}'"
    return repr(value)
