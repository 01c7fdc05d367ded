"""What the values of task.toml must satisfy among themselves: axes, cases, arguments, goals, expressions.

Must not touch the disk; `places` does what needs files. Also says what no judge of ours can judge yet.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from keepfast import dtypes, expr
from keepfast.errors import TaskError, nearest
from keepfast.model import Argument, Build, Case, Signature, Task
from keepfast.model.task import GPU_LANGUAGES
from keepfast.task import rules
from keepfast.task.file import ArgumentKeys, Source
from keepfast.task.signature import reserved

LANGUAGES = ("c", "triton", "cuda", "cute", "torch")
ROLES = ("input", "weight", "scratch", "index", "meta")
_SUFFIXES = {"c": (".c", ".cc", ".cpp", ".cxx"), "cuda": (".cu",), "triton": (".py",), "cute": (".py",), "torch": (".py",)}
_CASE_KEYS = ("name", "weight", "use")
_MAX_AXIS = 2**40


def one_of(source: Source, path: tuple[str, ...], value: str, known: Iterable[str]) -> None:
    """TaskError unless `value` is one of `known`."""
    names = tuple(known)
    if value not in names:
        shown = ", ".join(f'"{n}"' for n in names)
        raise source.error(path, f"`{path[-1]}` cannot be `{value}`.{nearest(value, names)}", f"One of: {shown}")


def languages(source: Source, entry_path: str) -> tuple[str, ...]:
    """The languages, each known and at least one fitting the entry's suffix."""
    found = source.keys.languages
    for name in found:
        one_of(source, ("languages",), name, LANGUAGES)
    suffixes = [s for name in found for s in _SUFFIXES[name]]
    if not any(entry_path.endswith(s) for s in suffixes):
        raise source.error(("entry",), f"`{entry_path}` is no file of {', '.join(found) or 'no language'} ({', '.join(suffixes)})")
    return found


def axes(source: Source, signature: Signature) -> None:
    """Axis names are plain, single, and not those of arguments or outputs."""
    taken = {a.name for a in signature.args} | {r.name for r in signature.outputs}
    for name in source.keys.axes:
        why = reserved(name) or ("is a key of every case" if name in _CASE_KEYS else None)
        if why:
            raise source.error(("axes",), f"axis `{name}`: {why}")
        if name in taken:
            step = f"Take `{name}` out of the signature: every axis reaches the kernel as int64_t, after the outputs"
            raise source.error(("axes",), f"`{name}` is both an axis and an argument", step)
    if len(set(source.keys.axes)) < len(source.keys.axes):
        raise source.error(("axes",), "an axis is named twice")
    if len(source.keys.axes) > 16:
        raise source.error(("axes",), "more than 16 axes")


# --------------------------------------------------------------------------------------------- cases


def cases(source: Source) -> tuple[Case, ...]:
    """Every [[case]], each binding every axis; at least one is timed."""
    found = tuple(_case(source, i) for i in range(len(source.keys.case)))
    if not any(c.timed for c in found):
        raise source.error(("case",), "no case is timed", 'Give one [[case]] use = "both" (the default) or "time"')
    names = [c.name for c in found]
    double = next((i for i, name in enumerate(names) if name in names[:i]), None)
    if double is not None:
        raise source.error(("case", double, "name"), f"two cases are called `{names[double]}`", 'Give each its own: name = "..."')
    return found


def _case(source: Source, index: int) -> Case:
    table, names = source.keys.case[index], source.keys.axes
    for key in table:
        if key not in (*names, *_CASE_KEYS):
            hint = nearest(key, (*names, *_CASE_KEYS))
            step = f"Keys here: the axes ({', '.join(names) or 'none'}), {', '.join(_CASE_KEYS)}"
            raise source.error(("case", index, key), f"unknown key `{key}` in [[case]].{hint}", step)
    bound = tuple((axis, _axis(source, index, axis)) for axis in names)
    name = _case_name(source, index) or "_".join(f"{axis}{value}" for axis, value in bound) or "only"
    weight = table.get("weight", 1.0)
    if not isinstance(weight, int | float) or isinstance(weight, bool) or not 0 < weight < math.inf:
        raise source.error(("case", index, "weight"), f"case `{name}`: `weight` must be a number above 0")
    use = table.get("use", "both")
    if not isinstance(use, str) or use not in ("time", "correct", "both"):
        raise source.error(("case", index, "use"), f'case `{name}`: `use` must be "time", "correct" or "both", not `{use}`')
    return Case(name, bound, float(weight), use)


def _case_name(source: Source, index: int) -> str:
    name = source.keys.case[index].get("name", "")
    if not isinstance(name, str) or name != name.strip() or not name.isprintable() or len(name) > 64:
        raise source.error(("case", index, "name"), "`name` must be a text of at most 64 printable characters")
    return name


def _axis(source: Source, index: int, axis: str) -> int:
    table = source.keys.case[index]
    called = f"case `{table['name']}`" if "name" in table else f"case {index + 1}"
    value = table.get(axis)
    if value is None:
        raise source.error(("case", index), f"{called} does not bind axis `{axis}`", f"Add a line under this [[case]]: {axis} = 1024")
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _MAX_AXIS:
        raise source.error(("case", index, axis), f"{called}: `{axis}` must be a whole number from 1 to 2^40")
    return value


# --------------------------------------------------------------------------------------------- arguments


def arguments(source: Source, signature: Signature) -> tuple[Argument, ...]:
    """One record for every argument and output, those that task.toml does not name with defaults."""
    known = (*(a.name for a in signature.args), *(r.name for r in signature.outputs))
    for name in source.keys.arguments:
        if name not in known:
            step = f"The signature has: {', '.join(known)}"
            raise source.error(("arguments", name), f"no argument or output is called `{name}`.{nearest(name, known)}", step)
    return tuple(_argument(source, signature, name) for name in known)


def _argument(source: Source, signature: Signature, name: str) -> Argument:
    keys = source.keys.arguments.get(name, ArgumentKeys())
    path = ("arguments", name)
    one_of(source, (*path, "role"), keys.role, ROLES)
    one_of(source, (*path, "refresh"), keys.refresh, ("element", "whole"))
    if keys.dtype:
        one_of(source, (*path, "dtype"), keys.dtype, dtypes.names())
    why = _unfit_role(signature, name, keys)
    if why:
        raise source.error(path, f"`{name}`: {why}")
    return Argument(name, keys.role, keys.refresh, keys.dtype)


def _unfit_role(signature: Signature, name: str, keys: ArgumentKeys) -> str | None:
    arg = next((a for a in signature.args if a.name == name), None)
    if arg is None:
        return "an output has no role" if keys.role != "input" else None
    if arg.kind != "tensor":
        if keys.dtype:
            return "a scalar has no dtype: the signature says its type"
        return None if keys.role in ("input", "meta") else f"a scalar cannot have the role `{keys.role}`"
    if keys.role == "scratch":
        return None if arg.written else "scratch is written by the kernel: mark it `Tensor(a!)` in the signature"
    if arg.written and keys.role != "input":
        return f"a written argument cannot have the role `{keys.role}`"
    return None


# --------------------------------------------------------------------------------------------- numbers and words


def numbers(source: Source) -> None:
    """Goal, budget, threads and the expressions."""
    _positive(source)
    keys = source.keys
    one_of(source, ("goal", "over"), keys.goal.over, ("baseline", "start"))
    one_of(source, ("oracle",), keys.oracle, ("reference", "frozen"))
    one_of(source, ("prepare",), keys.prepare, ("", "step"))
    for path in (("limit", "bytes"), ("limit", "flops"), ("tolerance", "reduction")):
        _expression(source, path)


def build(source: Source, *, gpu: bool) -> Build:
    """[build], with the default of a GPU task where task.toml says nothing: nvcc gets -O3."""
    own = "flags" in source.data.get("build", {})
    return replace(source.keys.build, flags=("-O3",)) if gpu and not own else source.keys.build


def _positive(source: Source) -> None:
    keys = source.keys
    if not 1 <= keys.threads <= 1024:
        raise source.error(("threads",), "`threads` must be from 1 to 1024")
    if keys.goal.speedup is not None and not 1 < keys.goal.speedup < math.inf:
        raise source.error(("goal", "speedup"), "`speedup` must be above 1: 1.3 asks for 1.3 times as many calls a second")
    if keys.goal.limit is not None and not 0 < keys.goal.limit <= 1:
        raise source.error(("goal", "limit"), "`limit` is a share of the physical limit, above 0 and at most 1")
    for name, value in (("experiments", keys.budget.experiments), ("hours", keys.budget.hours), ("dry", keys.budget.dry)):
        if value is not None and not 0 < value < math.inf:
            raise source.error(("budget", name), f"`{name}` must be above 0")
    if keys.budget.dollars is not None and not 0 <= keys.budget.dollars < math.inf:
        raise source.error(("budget", "dollars"), "`dollars` must not be below 0")
    if not 0 < keys.tolerance.scale <= 1000:
        raise source.error(("tolerance", "scale"), "`scale` must be above 0 and at most 1000; 1 is the default")


def _expression(source: Source, path: tuple[str, str]) -> None:
    """It parses over the axes and has a value of at least 0 for every case."""
    text: str = getattr(getattr(source.keys, path[0]), path[1])
    if not text:
        return
    try:
        parsed = expr.parse(text, source.keys.axes)
        for case in source.keys.case:
            axis_values = {a: v for a in source.keys.axes if isinstance(v := case.get(a), int)}
            if len(axis_values) == len(source.keys.axes) and parsed.value(axis_values) < 0:
                raise source.error(path, f"[{path[0]}] {path[1]}: `{text}` is below 0 for {axis_values}")
    except expr.ExprError as problem:
        raise source.error(path, f"[{path[0]}] {path[1]}: {problem.what}", problem.next_step) from None


# --------------------------------------------------------------------------------------------- what can be judged


def refuse_unfit(task: Task) -> None:
    """TaskError, one sentence, for what the judge of this task cannot do: nothing is silently left out.

    That is the GPU judge where every language is one of a GPU, else the CPU judge.
    """
    why, step = _mixed(task) or (_not_on_gpu(task) if task.gpu else _not_on_cpu(task)) or ("", "")
    if why:
        raise TaskError(why, where="task.toml", next_step=step)


def _mixed(task: Task) -> tuple[str, str] | None:
    gpu = [name for name in task.languages if name in GPU_LANGUAGES]
    cpu = [name for name in task.languages if name not in GPU_LANGUAGES]
    if not gpu or not cpu:
        return None
    what = f"`{cpu[0]}` is judged on a CPU and `{gpu[0]}` on a GPU: one task has languages of one kind"
    return what, "Leave one kind in `languages`, and write a second task for the other"


def _not_on_cpu(task: Task) -> tuple[str, str] | None:
    step = 'Take it out, or name a language of a GPU in `languages`: "triton", "cuda", "cute", "torch"'
    for argument in task.arguments:
        if argument.role not in ("input", "weight"):
            return f"the role `{argument.role}` of `{argument.name}` needs a GPU judge", step
        if argument.dtype and dtypes.by_name(argument.dtype).numpy is None:
            what = f"`{argument.name}` is {argument.dtype}, which NumPy cannot hold: it would have to be cast, so the CPU judge refuses it"
            return what, step
    if rules.not_on_cpu(task.rules, step) is None and _prepared(task):
        return "a `prepare` beside the entry needs a GPU judge", "Take it out: weights are given to the kernel as they are"
    return rules.not_on_cpu(task.rules, step)


def _not_on_gpu(task: Task) -> tuple[str, str] | None:
    if not task.entry_path.endswith(".py") and _prepared(task):
        step = "Do that work in the call, or give the function another name"
        return f"`{task.entry_path}` has the C ABI, and a `prepare` is called beside an entry in Python only", step
    return rules.not_on_gpu(task.rules)


def _prepared(task: Task) -> bool:
    """Whether there is one beside the entry, or the task asks for one."""
    path = Path(task.root) / task.entry_path
    text = path.read_text(errors="replace") if path.is_file() else ""
    return bool(task.prepare) or rules.prepares(task.entry_path, text)
