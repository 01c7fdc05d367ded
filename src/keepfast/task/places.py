"""The files of a task: where they must lie, that they are there, and what their contents hash to.

Owns who may reach which file. Reads the disk, writes nothing, runs nothing.
"""

from __future__ import annotations

import ast
import hashlib
import json
from pathlib import Path, PurePosixPath

from keepfast.errors import TaskError
from keepfast.model import Baseline, File, Task
from keepfast.task import tunables as tunables_file
from keepfast.task.file import NAME, Source
from keepfast.task.paths import expand, matches_any, reaches, unfit
from keepfast.task.signature import reserved

REFERENCE = "reference.py"
FROZEN = "frozen"
# What is the human's in every task folder, whatever `editable` says.
PROTECTED = (NAME, REFERENCE, "ideas.md", "baselines/", "deck/", f"{FROZEN}/")
_BASELINE_LANGUAGES = {".py": "python", ".c": "c", ".cc": "c", ".cpp": "c", ".cxx": "c", ".cu": "cuda"}
_GPU_BASELINES = {".py": "torch", ".cu": "cuda"}


def repository(folder: Path) -> Path | None:
    """The nearest folder upwards that holds a `.git`, or None."""
    return next((p for p in (folder, *folder.parents) if (p / ".git").exists()), None)


def root(source: Source, folder: Path) -> Path:
    """`root` as an absolute folder; it may go up, but not out of the repository."""
    text = source.keys.root
    found = (folder / text).resolve()
    if PurePosixPath(text).is_absolute() or "\\" in text or not text.isprintable():
        raise source.error(("root",), "`root` must be relative to the task folder, with forward slashes")
    if not found.is_dir():
        raise source.error(("root",), f"`root` is no folder: {found}")
    limit = repository(folder) or folder
    if not found.is_relative_to(limit):
        outside = f"leaves the repository {limit}" if limit != folder else "goes up, but the task is in no git repository"
        raise source.error(("root",), f'`root = "{text}"` {outside}')
    return found


def entry(source: Source, root: Path) -> tuple[str, str]:
    """Path (relative to root) and symbol of `entry`."""
    text = source.keys.entry
    path, colon, symbol = text.rpartition(":")
    if not colon:
        raise source.error(("entry",), f"`{text}` names no function", 'Write entry = "kernel/kernel.c:kernel"')
    why = unfit(path)
    if why:
        raise source.error(("entry",), f"the path `{path}` {why}")
    why = reserved(symbol)
    if why:
        raise source.error(("entry",), why)
    if not (root / path).is_file():
        raise source.error(("entry",), f"{path} does not exist in {root}", "Write the file, or change `entry` or `root`")
    return path, symbol


def editable(source: Source, folder: Path, root: Path) -> None:
    """Every glob is clean, none reaches what is the human's, and together they match a file."""
    patterns = source.keys.editable
    if not patterns:
        raise source.error(("editable",), "`editable` is empty: nothing could be changed", 'Write editable = ["kernel/**"]')
    _clean(source, ("editable",), patterns)
    hit = _reached(patterns, folder, root, PROTECTED)
    if hit:
        step = 'List only what may change, as in editable = ["kernel/**"]'
        raise source.error(("editable",), f"`{hit[0]}` reaches {hit[1]}, which is yours and not the candidate's", step)
    if not expand(root, patterns):
        raise source.error(("editable",), f"no file in {root} matches {', '.join(patterns)}", "Write the kernel, or change `editable`")


def build(source: Source, folder: Path, root: Path) -> None:
    """[build]: paths are clean and exist; the compiler never sees reference, baselines or deck."""
    keys = source.keys.build
    for name in ("sources", "include", "readable"):
        _clean(source, ("build", name), tuple(p for p in getattr(keys, name) if (name, p) != ("include", ".")))
    for path in keys.sources:
        if not (root / path).is_file():
            raise source.error(("build", "sources"), f"[build] sources: {path} does not exist in {root}")
    for path in keys.include:
        if not (root / path).is_dir():
            raise source.error(("build", "include"), f"[build] include: {path} is no folder in {root}")
    for name in ("flags", "libs"):
        if not all(v and v.isprintable() for v in getattr(keys, name)):
            raise source.error(("build", name), f"[build] {name}: an element is empty or has unprintable characters")
    hit = _reached((*keys.readable, *keys.sources), folder, root, (REFERENCE, "baselines/", "deck/"))
    if hit:
        raise source.error(("build",), f"[build] `{hit[0]}` reaches {hit[1]}, which a candidate's compiler must not see")


def _clean(source: Source, path: tuple[str, ...], patterns: tuple[str, ...]) -> None:
    for pattern in patterns:
        why = unfit(pattern)
        if why:
            raise source.error(path, f"`{pattern}` in `{path[-1]}` {why}")


def _reached(patterns: tuple[str, ...], folder: Path, root: Path, names: tuple[str, ...]) -> tuple[str, str] | None:
    """The first pattern that reaches one of `names` in the task folder, and that name."""
    if not folder.is_relative_to(root):
        return None
    inside = folder.relative_to(root)
    return next(((p, name) for p in patterns for name in names if reaches(p, _join(inside, name))), None)


def _join(folder: Path, name: str) -> str:
    """`folder/name`, which keeps the slash at the end of a folder's name."""
    return name if folder == Path() else f"{folder.as_posix()}/{name}"


# --------------------------------------------------------------------------------------------- the human's files

_FORMS = {
    "inputs": "def inputs(case, rng): ...", "outputs": "def outputs(case): ...", "reference": "def reference(...): ...",
    "meta": "def meta(case, rng): ...   it returns the tensors of role `meta`, by name, on the CPU",
}  # fmt: skip


def reference(folder: Path, needed: tuple[str, ...]) -> None:
    """reference.py is there, is Python, and binds the `needed` functions."""
    try:
        tree = ast.parse((folder / REFERENCE).read_bytes(), REFERENCE)
    except FileNotFoundError:
        step = "Write inputs(case, rng) and reference(...) there; keepfast init writes one to start from"
        raise TaskError(f"no {REFERENCE} in {folder}", next_step=step) from None
    except (SyntaxError, ValueError) as problem:
        line = f":{problem.lineno}" if isinstance(problem, SyntaxError) and problem.lineno else ""
        raise TaskError(f"not Python: {getattr(problem, 'msg', problem)}", where=f"{REFERENCE}{line}") from None
    names = _bound(tree)
    for name in needed:
        if name not in names and "*" not in names:
            raise TaskError(f"`{name}` is not defined", where=REFERENCE, next_step=f"Write: {_FORMS[name]}")


def _bound(tree: ast.Module) -> set[str]:
    """Names that the module binds at its top level."""
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found.update(a.asname or a.name for a in node.names)
        elif isinstance(node, ast.Assign):
            found.update(t.id for t in node.targets if isinstance(t, ast.Name))
    return found


def oracle(source: Source, folder: Path) -> None:
    """With `oracle = "frozen"` there are frozen sources, and they are files that `editable` names."""
    paths = expand(folder, (f"{FROZEN}/**",))
    if source.keys.oracle != "frozen":
        return
    if not paths:
        step = "Put copies of the editable files there, with their paths below `root`"
        raise source.error(("oracle",), f'`oracle = "frozen"`, but {folder / FROZEN} holds no file', step)
    for path in paths:
        inner = path.removeprefix(f"{FROZEN}/")
        if not matches_any(source.keys.editable, inner):
            raise source.error(("oracle",), f"{path}: no `editable` glob matches {inner}, so it would replace nothing")


def frozen(task: Task) -> tuple[File, ...]:
    """The frozen sources with their paths relative to root: build them as a candidate's files; () unless the oracle is frozen."""
    if task.oracle != "frozen":
        return ()
    folder = Path(task.folder)
    paths = expand(folder, (f"{FROZEN}/**",))
    return tuple(File(p.removeprefix(f"{FROZEN}/"), (folder / p).read_bytes()) for p in paths)


def baselines(folder: Path, *, gpu: bool = False) -> tuple[Baseline, ...]:
    """baselines/NAME.py and baselines/NAME.c (.cc, .cpp, .cu), by name. Other files there are none. On a GPU Python is torch."""
    found: dict[str, Baseline] = {}
    for path in sorted((folder / "baselines").glob("*")):
        language = _BASELINE_LANGUAGES.get(path.suffix)
        if language is None or path.name.startswith((".", "_")):
            continue
        if gpu and path.suffix not in _GPU_BASELINES:
            step = "Write it as NAME.py or NAME.cu, or move it out of baselines/"
            raise TaskError("a baseline of a GPU task is written in Python or CUDA", where=f"baselines/{path.name}", next_step=step)
        if path.stem in found:
            raise TaskError(f"two baselines are called `{path.stem}`", where=f"baselines/{path.name}", next_step="Rename one")
        found[path.stem] = Baseline(path.stem, f"baselines/{path.name}", _GPU_BASELINES[path.suffix] if gpu else language)
    return tuple(found.values())


def tunables(source: Source, root: Path, entry_path: str) -> str:
    """Path of the one tunables.toml, relative to root, or "". It lies beside the entry or among the editable files, and parses."""
    beside = (PurePosixPath(entry_path).parent / tunables_file.FILE).as_posix()
    found = {p for p in expand(root, source.keys.editable) if PurePosixPath(p).name == tunables_file.FILE}
    if (root / beside).is_file() and beside not in found:
        what = "not matched by `editable`, so its values could not be changed"
        raise TaskError(what, where=beside, next_step=f'Add "{beside}" to `editable`')
    if len(found) > 1:
        raise TaskError(f"more than one {tunables_file.FILE}: {', '.join(sorted(found))}", next_step="Keep one")
    for path in found:
        _parsed_tunables(root, path)
    return next(iter(found), "")


def _parsed_tunables(root: Path, path: str) -> None:
    try:
        tunables_file.parse((root / path).read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise TaskError("not UTF-8", where=path) from None
    except TaskError as problem:
        raise TaskError(problem.what, where=path, next_step=problem.next_step) from None


def task_hash(source: Source, folder: Path) -> str:
    """sha256 over task.toml less [budget], [dispatch] and [engine], reference.py, baselines and frozen sources."""
    data = {key: value for key, value in source.data.items() if key not in ("budget", "dispatch", "engine")}
    digest = hashlib.sha256(json.dumps(data, sort_keys=True, default=str).encode())
    for path in expand(folder, (REFERENCE, "baselines/**", f"{FROZEN}/**")):
        if "__pycache__" in path.split("/"):
            continue
        contents = (folder / path).read_bytes()
        digest.update(f"\0{path}\0{len(contents)}\0".encode("utf-8", "surrogateescape"))
        digest.update(contents)
    return digest.hexdigest()
