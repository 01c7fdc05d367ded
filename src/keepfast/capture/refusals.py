"""Why a candidate cannot be captured: its exceptions, put into the words of messages.CAPTURE_ERRORS with file and line.

Owns what an exception means. Must not know CUDA, layouts or how anything is captured.
"""

from __future__ import annotations

import linecache
import re
import traceback
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType, TracebackType

DETAIL = 1500  # characters
LOADING, CALLING, CAPTURING = "import", "call", "capture"

_FAULT = re.compile(
    r"illegal memory access|illegal address|misaligned address|device-side assert|launch failure|illegal instruction|hardware stack"
    r"|invalid program counter|uncorrectable ECC|ILLEGAL_ADDRESS|MISALIGNED_ADDRESS|ERROR_ASSERT|LAUNCH_FAILED|ILLEGAL_INSTRUCTION",
    re.IGNORECASE,
)
_CUDA = re.compile(r"CUDA error|Triton Error \[CUDA\]|CUDA_ERROR|cudaError|CUDA driver error|cuBLAS error|CUBLAS_STATUS", re.IGNORECASE)
_MEMORY = re.compile(r"out of memory|MEMORY_ALLOCATION|OUT_OF_MEMORY|ALLOC_FAILED", re.IGNORECASE)
_GRAPH = re.compile(
    r"STREAM_CAPTURE|StreamCapture|stream is capturing|capturing (blocking )?stream|graph capture|during capture|capture mode|cudagraph",
    re.IGNORECASE,
)
_COMPILE = re.compile(r"\bnvrtc\b|ptxas|Error building extension|PassManager::run failed|nvcc", re.IGNORECASE)
_COMPILERS = ("triton.", "cutlass.", "torch._inductor.", "torch._dynamo.", "torch._functorch.", "cupy_backends.")
_COMPILING = ("/triton/compiler/", "/triton/backends/nvidia/compiler.py", "/cutlass/base_dsl/", "/torch/_inductor/codecache.py")
_PLACE = re.compile(r"at (\d+):(\d+):\n")
_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class Refused(Exception):
    """The candidate cannot be captured: one of messages.CAPTURE_ERRORS, and a sentence."""

    def __init__(self, error: str, detail: str) -> None:
        self.error, self.detail = error, clean(detail)[:DETAIL]
        super().__init__(f"{error}: {self.detail}")


class NotAPlan(Exception):
    """What in the captured work cannot be replayed, as a sentence."""


class Guard:
    """A candidate's code runs inside. Whatever it raises, an exit of the process included, comes out as Refused.

    `memory` says what was asked for in vain since it was last called, or "": torch does not notice when the arena has no more.
    """

    def __init__(self, tree: Path, phase: str, memory: Callable[[], str]) -> None:
        self.tree, self.phase, self.memory = tree, phase, memory

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(error, Refused):
            return
        at = of_trace(trace, self.tree) if error is not None else ""
        if short := self.memory():
            raise Refused("memory", _join(at, short)) from None
        if error is not None:
            raise Refused(meaning(error, self.phase), _join(_syntax(error, self.tree) or at, said(error))) from None


def meaning(error: BaseException, phase: str) -> str:
    """Which of messages.CAPTURE_ERRORS an exception of a candidate is."""
    text, kinds = str(error), type(error).__mro__
    named = any(k.__name__ == "OutOfMemoryError" for k in kinds)
    if named or isinstance(error, MemoryError) or (_CUDA.search(text) and _MEMORY.search(text)):
        return "memory"
    if _FAULT.search(_first(text)):
        return "fault"
    if _GRAPH.search(text) or _through(error, ("/torch/_inductor/cudagraph_trees.py",)) or (phase == CAPTURING and _CUDA.search(text)):
        return "graph"
    if isinstance(error, ImportError | SyntaxError):
        return "import"
    compiler = any(f"{k.__module__}.".startswith(_COMPILERS) for k in kinds)
    if not _CUDA.search(text) and (compiler or _COMPILE.search(text) or _through(error, _COMPILING)):
        return "compile"
    return "import" if phase == LOADING else "raised"


def _first(text: str) -> str:
    """Of torch's CUDA errors the first line: those after it are advice, and speak of device-side assertions whatever happened."""
    return text.splitlines()[0] if _CUDA.search(text) else text


def said(error: BaseException) -> str:
    """Type and message. What a compiler says has many lines, and an agent needs them; torch's second line is advice about CUDA."""
    text = _compiled(clean(str(error)).strip())
    text = _first(text)
    name = type(error).__name__
    return f"{name}: {text}" if text else name


def _compiled(text: str) -> str:
    """Triton shows a kernel up to the place of an error, then says what is wrong: the place and what is wrong are enough."""
    place = _PLACE.match(text)
    if place is None:
        return text
    name = re.search(r"^def (\w+)\(", text, re.MULTILINE)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    shown = next((line for line, below in pairwise(lines) if set(below) == {"^"}), "")
    last = lines[-1] if set(lines[-1]) != {"^"} else ""
    return f"line {place[1]} of `{name[1] if name else 'a kernel'}`: {shown}{': ' if shown and last else ''}{last}"


def of_trace(trace: TracebackType | None, tree: Path) -> str:
    """`file:line: source` of the innermost frame that lies in the tree, or ""."""
    frames = ((frame.f_code, line) for frame, line in traceback.walk_tb(trace))
    return _innermost(reversed(list(frames)), tree)


def of_stack(frame: FrameType | None, tree: Path) -> str:
    """The same for code that is running now."""
    return _innermost(((f.f_code, line) for f, line in traceback.walk_stack(frame)), tree)


def clean(text: str) -> str:
    """Without colours and without what cannot travel as UTF-8."""
    return _ESCAPES.sub("", text).encode("utf-8", "replace").decode()


def _innermost(frames: Iterator[tuple[CodeType, int]], tree: Path) -> str:
    """`frames`: innermost first."""
    for code, line in frames:
        path = Path(code.co_filename)
        if path.is_relative_to(tree):
            source = linecache.getline(code.co_filename, line).strip()
            return f"{path.relative_to(tree)}:{line}" + (f": `{source[:200]}`" if source else "")
    return ""


def _syntax(error: BaseException, tree: Path) -> str:
    """Where a file does not parse: no frame of it is on the stack."""
    if not isinstance(error, SyntaxError) or not error.filename or not Path(error.filename).is_relative_to(tree):
        return ""
    source = (error.text or "").strip()
    return f"{Path(error.filename).relative_to(tree)}:{error.lineno or 1}" + (f": `{source[:200]}`" if source else "")


def _through(error: BaseException, files: tuple[str, ...]) -> bool:
    """Whether the exception came up through one of these files of a library."""
    return any(part in frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__) for part in files)


def _join(at: str, what: str) -> str:
    return f"{at}: {what}" if at else what
