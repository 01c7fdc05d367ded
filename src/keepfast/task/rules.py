"""[rules] of task.toml: what the values must satisfy, and which of them a judge of a CPU or of a GPU cannot hold a kernel to.

Must not know how the judge finds out. `prepares` reads a file that may be a candidate's: as text, within bounds.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable

from msgspec.structs import asdict

from keepfast.errors import nearest
from keepfast.model import Rules, Task
from keepfast.model.task import FLOORS, GPU_LANGUAGES
from keepfast.task.file import Source

OWN_KERNELS = tuple(name for name in GPU_LANGUAGES if name != "torch")  # languages that a kernel, not its host code, is written in
SOURCE_BYTES = 4 << 20  # of a file that is searched for `prepare`
_NO_CODE = re.compile(r"/\*.*?(?:\*/|\Z)|//[^\n]*|\"(?:[^\"\\\n]|\\.)*+\"?|'(?:[^'\\\n]|\\.)*+'?", re.DOTALL)  # comments and literals
_MARK = re.compile(r"[{})]|(?:\bprepare\s*+)?\(")
_BODY = re.compile(r"\s*+\{")
_SHARE = re.compile(r"0?\.\d+|0", re.ASCII)  # of GPU time, below 1


def read(source: Source, *, gpu: bool) -> Rules:
    """[rules], a GPU task's with CUDA graphs where it says nothing. TaskError for what cannot be meant."""
    keys = source.keys.rules
    _one_of(source, "cuda_graphs", keys.cuda_graphs, ("allowed", "required", "forbidden"))
    if _SHARE.fullmatch(keys.library_kernels) is None:
        step = 'One of: "allowed", "forbidden", or the largest share of GPU time that they may take, as in "0.2"'
        _one_of(source, "library_kernels", keys.library_kernels, ("allowed", "forbidden"), step)
    _one_of(source, "precision_floor", keys.precision_floor, ("", *FLOORS))
    _one_of(source, "prepare", keys.prepare, ("", "forbidden", "step"))
    _languages(source)
    _min_axis(source)
    if source.keys.prepare and keys.prepare == "forbidden":
        raise source.error(("rules", "prepare"), "`prepare` is asked for above and forbidden here", "Take one of the two out")
    graphs = "required" if gpu and "cuda_graphs" not in source.data.get("rules", {}) else keys.cuda_graphs
    return Rules(**{**asdict(keys), "cuda_graphs": graphs, "min_axis": tuple(keys.min_axis.items())})


def _one_of(source: Source, key: str, value: str, known: tuple[str, ...], step: str = "") -> None:
    if value not in known:
        shown = step or "One of: " + ", ".join(f'"{name}"' for name in known if name)
        raise source.error(("rules", key), f"`{key}` cannot be `{value}`.{nearest(value, known)}", shown)


def _languages(source: Source) -> None:
    for name in source.keys.rules.languages:
        _one_of(source, "languages", name, OWN_KERNELS)


def _min_axis(source: Source) -> None:
    """Some case reaches each."""
    for axis, least in source.keys.rules.min_axis.items():
        path = ("rules", "min_axis", axis)
        if axis not in source.keys.axes:
            step = f"The axes are: {', '.join(source.keys.axes) or 'none'}"
            raise source.error(path, f"`{axis}` is no axis.{nearest(axis, source.keys.axes)}", step)
        found = [value for case in source.keys.case if isinstance(value := case.get(axis), int)]
        if max(found, default=0) < least:
            others = " ".join(f"{name} = ..." for name in source.keys.axes if name != axis)
            step = f'Add a [[case]] with {axis} = {least}{f" and {others}" if others else ""}; use = "correct" if it is not to be timed'
            raise source.error(path, f"`min_axis` asks for {axis} = {least}, and the cases end at {max(found, default=0)}", step)


# --------------------------------------------------------------------------------------------- what can be judged


def not_on_cpu(rules: Rules, step: str) -> tuple[str, str] | None:
    """Why a judge of a CPU cannot hold a kernel to these, and what to do."""
    if rules.cuda_graphs == "required":
        return '`cuda_graphs = "required"` cannot be met on a CPU', step
    if rules.library_kernels not in ("allowed", "forbidden"):
        return f'`library_kernels = "{rules.library_kernels}"` is a share of GPU time, which a CPU has not', step
    if rules.languages:
        return "`[rules] languages` is about kernels that a GPU launches; on a CPU `languages` says it all", step
    return None


def not_on_gpu(rules: Rules) -> tuple[str, str] | None:
    if rules.cuda_graphs == "forbidden":
        what = '`cuda_graphs = "forbidden"`: the GPU judge times calls that were captured as CUDA graphs, and nothing else'
        return what, 'Write cuda_graphs = "required", or leave it out'
    return None


# --------------------------------------------------------------------------------------------- `prepare` in a file


def prepare_is(task: Task) -> str:
    """What a `prepare` beside an entry is, a candidate's or a baseline's: "weights", work on them outside the clock; "step", a part of
    every call; "": nothing, it is not called."""
    return "" if task.rules.prepare == "forbidden" else "step" if task.prepare else "weights"


def prepares(path: str, text: str) -> bool:
    """Whether a source file defines a function `prepare`. Names in a macro or in generated code are not seen, nor ever called."""
    if len(text) > SOURCE_BYTES or "prepare" not in text:
        return False
    return "prepare" in _functions(text) if path.endswith(".py") else _in_c(text)


def _in_c(text: str) -> bool:
    """Whether `prepare(...) {` stands outside of all braces. In linear time whatever the text is, unlike `cproto`, which explains more."""
    plain = _NO_CODE.sub(" ", text)
    braces, opened = 0, list[bool]()  # of each open parenthesis: whether it follows `prepare` outside of braces
    for match in _MARK.finditer(plain):
        mark = match[0][-1]
        if mark == "(":
            opened.append(len(match[0]) > 1 and braces == 0)
        elif mark == ")":
            if opened and opened.pop() and _BODY.match(plain, match.end()):
                return True
        else:
            braces = max(0, braces + (1 if mark == "{" else -1))
    return False


def _functions(text: str) -> Iterable[str]:
    """Names that a Python file gives to functions or values at its top level; a file that is no Python fails in the build."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    named = [node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    assigned = [t.id for node in body if isinstance(node, ast.Assign) for t in node.targets if isinstance(t, ast.Name)]
    imported = [a.asname or a.name for node in body if isinstance(node, ast.ImportFrom) for a in node.names]
    return (*named, *assigned, *imported)
