"""A task folder read into a `Task`, strictly: whatever is unclear is refused with file, line and the next thing to type.

Owns what the keys of task.toml mean together. Must not run anything, import reference.py, or know git beyond where a repository begins.
"""

from __future__ import annotations

from pathlib import Path

from keepfast.errors import TaskError
from keepfast.model import Argument, Signature, Task
from keepfast.model.task import GPU_LANGUAGES
from keepfast.task import checks, dispatch, engine, file, places, rules
from keepfast.task.signature import SignatureError, parse


def load(folder: Path) -> Task:
    """The task in `folder`. TaskError says what is wrong, where, and what to type."""
    folder = folder.resolve()
    source = file.parse(read_text(folder))
    keys = source.keys
    signature = _signature(source)
    checks.axes(source, signature)
    checks.numbers(source)
    root = places.root(source, folder)
    entry_path, entry_symbol = places.entry(source, root)
    places.editable(source, folder, root)
    places.build(source, folder, root)
    places.oracle(source, folder)
    languages = checks.languages(source, entry_path)
    gpu = any(name in GPU_LANGUAGES for name in languages)
    arguments = checks.arguments(source, signature)
    places.reference(folder, (*_needed(keys.oracle, signature, gpu=gpu), *_drawn_apart(signature, arguments, gpu=gpu)))
    ruled = rules.read(source, gpu=gpu)
    cases, baselines = checks.cases(source), places.baselines(folder, gpu=gpu)
    return Task(
        name=folder.name,
        title=keys.title or folder.name,
        folder=str(folder),
        root=str(root),
        signature=signature,
        languages=languages,
        entry_path=entry_path,
        entry_symbol=entry_symbol,
        editable=keys.editable,
        axes=keys.axes,
        cases=cases,
        arguments=arguments,
        goal=keys.goal,
        budget=keys.budget,
        rules=ruled,
        limit=keys.limit,
        build=checks.build(source, gpu=gpu),
        tolerance=keys.tolerance,
        baselines=baselines,
        tunables=places.tunables(source, root, entry_path),
        threads=keys.threads,
        oracle=keys.oracle,
        hash=places.task_hash(source, folder),
        prepare=keys.prepare or ("step" if ruled.prepare == "step" else ""),
        engine=engine.read(source),
        dispatch=dispatch.read(source, cases, baselines),
    )


def read_text(folder: Path) -> str:
    """The text of task.toml in `folder`."""
    path = folder / file.NAME
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        step = f"keepfast init {folder.name} writes a task to start from"
        raise TaskError(f"no {file.NAME} in {folder}", next_step=step) from None
    except OSError as problem:
        raise TaskError(f"cannot be read: {problem.strerror}", where=str(path)) from None
    if len(data) > file.MAX_BYTES:
        raise TaskError(f"larger than {file.MAX_BYTES // 1024} KB", where=file.NAME)
    try:
        return data.decode()
    except UnicodeDecodeError as problem:
        line = data[: problem.start].count(b"\n") + 1
        raise TaskError("not UTF-8", where=f"{file.NAME}:{line}", next_step="Save the file as UTF-8") from None


def _signature(source: file.Source) -> Signature:
    try:
        return parse(source.keys.signature)
    except SignatureError as problem:
        raise source.error(("signature",), problem.what, problem.next_step) from None


def _drawn_apart(signature: Signature, arguments: tuple[Argument, ...], *, gpu: bool) -> tuple[str, ...]:
    """The function that draws what the host may read, where a tensor has that role."""
    tensors = {a.name for a in signature.args if a.kind == "tensor"}
    return ("meta",) if gpu and any(a.role == "meta" and a.name in tensors for a in arguments) else ()


def _needed(oracle: str, signature: Signature, *, gpu: bool) -> tuple[str, ...]:
    """Functions that reference.py must have. On a CPU a frozen oracle computes the values, but not how large fresh outputs are; on a
    GPU it is reference() that calls the frozen sources."""
    if oracle != "frozen" or gpu:
        return ("inputs", "reference")
    return ("inputs", "outputs") if signature.outputs else ("inputs",)
