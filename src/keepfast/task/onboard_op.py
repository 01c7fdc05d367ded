"""`keepfast init NAME --op torch.ops.NS.NAME`: a task around an operator that torch has. The operator is the start, the opponent and, in
float64, what is right.

Torch itself is asked in another process. Must not know how a schema is written.
"""

from __future__ import annotations

from msgspec import Struct

from keepfast.errors import UsageError, nearest
from keepfast.model import Signature
from keepfast.task import asked, given, texts, torch_schema, torch_texts
from keepfast.task.asked import AskSchema, AskTrial, Schema, Trial, Value
from keepfast.task.file import NAME
from keepfast.task.found import Found
from keepfast.task.given import Cases, Drawn, Fixed, Given, Listed
from keepfast.task.newfolder import Made
from keepfast.task.places import FROZEN, REFERENCE
from keepfast.task.signature import parse
from keepfast.task.torch_schema import Slot

LANGUAGES = ("torch", "triton")  # of start kernels
_TRIAL_ELEMENTS = 1 << 22


class OpOrigin(Struct, frozen=True):
    """An operator, as the human types it on the command line."""

    name: str  # torch.ops.NS.NAME
    cases: tuple[str, ...]
    overload: str = ""
    odd: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    language: str = "torch"
    found: Found | None = None  # what watching it run has told: in place of cases and arguments that nothing is said of


class Plan(Struct, frozen=True):
    schema: Schema
    signature: Signature
    slots: tuple[Slot, ...]
    returns: tuple[tuple[str, bool], ...]  # (name, whether it is an argument handed back)
    drawn: dict[str, Given]
    said: frozenset[str]
    cases: Cases


def files(origin: OpOrigin) -> Made:
    """Contents of every file of the task, by name, and notes."""
    if origin.language not in LANGUAGES:
        what = f"a start kernel cannot be written in `{origin.language}`.{nearest(origin.language, LANGUAGES)}"
        raise UsageError(what, where="--language", next_step=f"One of: {', '.join(LANGUAGES)}")
    plan = planned(origin)
    tried = asked.ask("schema", AskTrial(plan.schema.name, origin.imports, _trial(plan)), Trial)
    if tried.error:
        raise UsageError(f"{plan.schema.name} refuses these arguments: {tried.error}", where="--arg", next_step=given.FORM)
    exact = tried.exact if tried.ran else ("op" if plan.schema.name.startswith("aten.") else "")
    notes = _notes(origin, plan, tried, exact)
    wrapper = _module(origin, f'"""The operator itself: {plan.schema.name}."""', _entry(plan))
    made = {
        NAME: _task(origin, plan, exact, notes),
        REFERENCE: _reference(origin, plan, exact),
        "kernel/kernel.py": wrapper if origin.language == "torch" else _skeleton(plan, origin.language),
        "baselines/op.py": wrapper,
    }
    if not exact:
        made[f"{FROZEN}/kernel/kernel.py"] = wrapper
    files = {name: text.encode() for name, text in made.items()}
    return Made(files | (origin.found.files if origin.found else {}), notes)


def _notes(origin: OpOrigin, plan: Plan, tried: Trial, exact: str) -> tuple[str, ...]:
    notes = list(origin.found.notes) if origin.found else []
    if not exact and tried.ran:
        notes.append("the operator gives no float64 answer: what it gives now is right, same as before, not proven right")
    elif not tried.ran:
        notes.append(
            f"the operator could not be tried on this machine: {'it is taken to work in float64' if exact else 'it is its own judge'}"
        )
    if origin.language != "torch":
        notes.append("kernel/kernel.py is a skeleton, and wrong until it computes what the operator does")
    unsaid = {name: one for name, one in plan.drawn.items() if isinstance(one, Drawn) and name not in plan.said}
    if unsaid:
        shown = ", ".join(f"{name}[{','.join(one.dims)}]" for name, one in unsaid.items())
        notes.append(f"drawn as {given.DTYPE}, as nothing was said of them (--arg): {shown}")
    return tuple(notes)


# --------------------------------------------------------------------------------------------- the schema


def planned(origin: OpOrigin) -> Plan:
    """The operator's arguments with what they are given. UsageError for a schema that keepfast cannot hold."""
    found = origin.found
    cases = found.cases if found else given.cases(origin.cases, origin.odd)
    said = (found.said if found else {}) | given.arguments(origin.arguments, cases)
    schema = asked.ask("schema", AskSchema(origin.name, origin.overload, origin.imports), Schema)
    if schema.error:
        raise UsageError(schema.error, where="--op", next_step=schema.step)
    if schema.random:
        raise UsageError(f"{schema.name} draws random numbers, so that no two calls agree", where="--op")
    name, slots, returns = torch_schema.read(schema.schema, said, cases)
    known = [slot.name for slot in slots]
    stray = next((n for n in said if n not in known), "")
    if stray:
        raise UsageError(f"`{stray}` is no argument.{nearest(stray, known)}", where="--arg", next_step=schema.schema)
    text = torch_schema.signature(name, slots, returns)
    drawn = {slot.name: slot.value for slot in slots if slot.text and slot.value is not None}
    return Plan(schema, parse(text), slots, returns, drawn, frozenset(said), cases)


# --------------------------------------------------------------------------------------------- a trial call


def _trial(plan: Plan) -> tuple[Value, ...]:
    """The call with the sizes of the smallest case, or with all axes cut down when that is large."""
    axes = plan.cases.axes
    rows = [dict(zip(axes, row, strict=True)) for row in plan.cases.all[1]]
    sizes = min(rows, key=lambda row: _elements(plan, row))
    if _elements(plan, sizes) > _TRIAL_ELEMENTS:
        sizes = {axis: min(value, 64) for axis, value in sizes.items()}
    positional, found = True, []
    for slot in plan.slots:
        positional = positional and not slot.keyword and slot.passed
        if slot.passed:
            found.append(_tried(slot, positional, sizes))
    return tuple(found)


def _elements(plan: Plan, sizes: dict[str, int]) -> int:
    total = 0
    for one in plan.drawn.values():
        count = 1
        for dim in one.dims if isinstance(one, Drawn) else ():
            count *= _size(dim, sizes)
        total += count
    return total


def _size(dim: str, sizes: dict[str, int]) -> int:
    return texts.dimension("", dim, (tuple(sizes), (tuple(sizes.values()),)), "--arg")[0]


def _tried(slot: Slot, positional: bool, sizes: dict[str, int]) -> Value:
    one = slot.value
    if isinstance(one, Drawn):
        below = _size(one.below, sizes) if one.below else 0
        return Value(slot.name, positional, one.dtype, tuple(_size(dim, sizes) for dim in one.dims), below)
    if isinstance(one, Listed):
        return Value(slot.name, positional, value=[given.number(item, sizes) for item in one.items])
    return Value(slot.name, positional, value=one.value if isinstance(one, Fixed) else None)


# --------------------------------------------------------------------------------------------- texts


def _task(origin: OpOrigin, plan: Plan, exact: str, notes: tuple[str, ...]) -> str:
    facts = torch_texts.Facts(
        title=plan.schema.name,
        signature=plan.signature.text,
        languages=("torch",) if origin.language == "torch" else (origin.language,),
        entry="kernel/kernel.py:kernel",
        cases=plan.cases,
        over="baseline",
        frozen="" if exact else "what the operator gives is right",
        roles=tuple((name, given.role(name, one)) for name, one in plan.drawn.items()),
        shapes=tuple(plan.drawn.items()),
        notes=notes,
        whole=origin.found.whole if origin.found else (),
    )
    return torch_texts.task_text(facts)


def _call(plan: Plan, function: str) -> str:
    """The call of the operator, arguments left out where they keep their default."""
    sizes, positional, words = given.places(plan.drawn, plan.cases.axes), True, []
    for slot in plan.slots:
        positional = positional and not slot.keyword and slot.passed
        if not slot.passed:
            continue
        text = slot.name
        if isinstance(slot.value, Listed):
            text = f"[{', '.join(given.shown(item, sizes, f'`{slot.name}`') for item in slot.value.items)}]"
        words.append(text if positional else f"{slot.name}={text}")
    return f"{function}({', '.join(words)})"


def _body(plan: Plan, function: str) -> str:
    """Lines that call it and return fresh outputs alone."""
    call, fresh = _call(plan, function), [i for i, (_, back) in enumerate(plan.returns) if not back]
    if len(fresh) == len(plan.returns):
        return f"    return {call}\n"
    picked = ", ".join(f"found[{i}]" for i in fresh)
    return f"    {call}\n" if not fresh else f"    found = {call}\n    return {picked}\n"


def _names(plan: Plan) -> str:
    return ", ".join(a.name for a in plan.signature.args)


def _entry(plan: Plan) -> str:
    return f"def kernel({_names(plan)}):\n{_body(plan, f'torch.ops.{plan.schema.name}')}"


def _module(origin: OpOrigin, doc: str, body: str) -> str:
    imports = "".join(f"import {name}  # noqa: F401  registers the operator\n" for name in origin.imports)
    used = "".join(f"import {name}\n" for name in ("hashlib", "json") if f"{name}." in body)
    used += "from pathlib import Path\n" if "Path(" in body else ""
    return f"{doc}\n\n{used}{chr(10) * bool(used)}import torch\n{imports}\n\n{body}"


def _reference(origin: OpOrigin, plan: Plan, exact: str) -> str:
    args = tuple((a.name, plan.drawn[a.name]) for a in plan.signature.args)
    names, inputs = _names(plan), torch_texts.inputs_text(args, origin.found)
    if not exact:
        doc = f'"""Inputs of {plan.schema.name}. What it gives now, in frozen/, is right: same as before, not proven right."""'
        own = f"from {FROZEN}.kernel.kernel import kernel\n\n\n"
        body = f'{own}{inputs}\n\ndef reference({names}):\n    """As the operator says, in the precision that it is meant for."""\n'
        return _module(origin, doc, f"{body}    return kernel({names})\n").replace("\n\n\nfrom ", "\nfrom ")
    doc = f'"""Inputs of {plan.schema.name}, and its answer, also in float64."""'
    function, head = f"torch.ops.{plan.schema.name}", ""
    if exact == "decomposition":
        head = f"from torch._decomp import decomposition_table\n\nDECOMPOSED = decomposition_table[{function}]\n\n\n"
        function = "DECOMPOSED"
    body = f'{head}{inputs}\n\ndef reference({names}):\n    """Called in the working precision, and with floating inputs in float64."""\n'
    found = _module(origin, doc, body + _body(plan, function))
    return found.replace("\n\n\nfrom torch", "\nfrom torch")


_SKELETON = '''\
"""A skeleton: it copies its first tensor, and is wrong until `body` computes what {name} does."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def body(x, out, size, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < size)
    tl.store(out + at, value, mask=at < size)  # here: what the operator computes


def kernel({names}):
{made}    body[(triton.cdiv({first}.numel(), BLOCK),)]({first}, {target}, {first}.numel(), BLOCK=BLOCK)
{returned}'''


def _skeleton(plan: Plan, language: str) -> str:
    tensors = [name for name, one in plan.drawn.items() if isinstance(one, Drawn)]
    if language != "triton" or not tensors:
        raise UsageError(f"there is no start kernel in {language} for this operator", where="--language", next_step="--language torch")
    outputs = [r.name for r in plan.signature.outputs]
    made = "".join(f"    {name} = torch.empty_like({tensors[0]})  # its shape and type, to be said\n" for name in outputs)
    returned = f"    return {', '.join(outputs)}\n" if outputs else ""
    target = outputs[0] if outputs else plan.signature.written[0].name
    names = _names(plan)
    return _SKELETON.format(name=plan.schema.name, names=names, made=made, first=tensors[0], target=target, returned=returned)
