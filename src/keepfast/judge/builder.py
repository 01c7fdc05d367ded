"""The build rung: a candidate's files become a shared object, or a tree that a capture worker imports, made inside the walls.

Owns the tree the compiler sees (the task's readable files and the candidate's, never reference, baselines or deck), its limits, and
the sentence for a failure. Nothing of the result is loaded, parsed or executed here.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import math
import os
import re
import select
import shutil
import stat
import time
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Literal

from msgspec import Struct

from keepfast import native
from keepfast.errors import MachineError, TaskError
from keepfast.judge import toolchain
from keepfast.judge.elf import code_hash
from keepfast.judge.endings import Failure
from keepfast.lang import base, python
from keepfast.model import File, Reason, Task
from keepfast.task import abi, tunables
from keepfast.task.paths import expand, unfit
from keepfast.task.places import PROTECTED
from keepfast.walls.base import MIB, Wall, Walled, Walls

Profile = Literal["builder", "device"]
SECONDS = 20.0
MEMORY_BYTES = 2048 * MIB
OUTPUT_BYTES = 64 * MIB
SCRATCH_BYTES = 256 * MIB
SOURCE_BYTES = 16 * MIB
LOG_BYTES = 64 << 10
PROCESSES = 32
TUNABLES = "keepfast_tunables.py"
EXPORTS = "{ global: keepfast_call; local: *; };\n"
MESSAGES = (
    re.compile(r"^(?P<file>[^\s:(][^:(\n]*)\((?P<line>\d+)\): (?:catastrophic )?error(?: #[\w-]+)?: (?P<text>.+)$", re.M),  # nvcc's
    re.compile(r"^(?:(?P<file>[^\s:][^:\n]*):(?:(?P<line>\d+):(?:\d+:)?)? )(?:fatal )?error: (?P<text>.+)$", re.M),
    re.compile(r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+): Error: (?P<text>.+)$", re.M),  # the assembler's
    re.compile(r"(?P<text>(?:undefined reference to|multiple definition of) .+)$", re.M),
    re.compile(r"^(?P<tool>ptxas|nvlink|nvcc) .*?(?:error|fatal) *: (?P<text>.+)$", re.M),
)
TEMPORARY = re.compile(r"cc\w{6}\.s")
EXHAUSTED = re.compile(
    r"out of memory|memory exhausted|Cannot allocate memory|terminated program|No space left on device|File too large|bad_alloc"
    r"|died due to signal (?:9|24|25)\b"
)


class Built(Struct, frozen=True):
    """A shared object. `code_hash` see `elf.code_hash`; `seconds` of compiling; `log` what the compiler said, at most 64 KiB."""

    path: Path
    code_hash: str
    seconds: float
    log: str = ""


class Site(Struct, frozen=True):
    """Where builds run, and the GPU they are for as in "sm_90", "" for a CPU."""

    walls: Walls
    arch: str = ""


class BuiltTree(Struct, frozen=True):
    """What a capture worker is given. `files` with paths relative to the task's root: what the task makes readable, the candidate's,
    and what is generated; `path`: folders of them that imports begin at. `library`: a shared object, for `cuda` one that exports
    `keepfast_call`, for `torch` an extension to load first. `code_hash` is of the files: what they launch is known after a capture."""

    language: str
    files: tuple[File, ...]
    path: tuple[str, ...]
    library: Path | None
    code_hash: str
    seconds: float
    log: str = ""


class Made(Struct, frozen=True):
    """What the steps left: `library` when the last one had an output."""

    language: str
    generated: tuple[File, ...]
    library: Path | None
    seconds: float
    log: str


class Said(Struct, frozen=True):
    """How a step ended. `status` None: it was still running when its time was over. `failure`: its output could not be taken."""

    status: int | None
    log: str
    failure: Failure | None = None


def build(walls: Walls, task: Task, files: tuple[File, ...], dtypes: Mapping[str, str], out: Path) -> Built | Failure:
    """Compiles `files` into `out`. `dtypes`: tensor name -> dtype name. A candidate's mistake is a Failure, a lack of ours MachineError."""
    made = _make(Site(walls), task, files, dtypes, out)
    return made if isinstance(made, Failure) else Built(out, code_hash(out), made.seconds, made.log)


def tree(site: Site, task: Task, files: tuple[File, ...], dtypes: Mapping[str, str], out: Path) -> BuiltTree | Failure:
    """Builds `files` for a GPU: checks what is Python, compiles the rest into `out`, and collects what a capture worker needs."""
    made = _make(site, task, files, dtypes, out)
    if isinstance(made, Failure):
        return made
    content = {file.path: file for file in (*_readable(task), *files)}
    top = python.import_root(task.entry_path, content)
    if task.entry_path.endswith(python.SUFFIXES):
        name = f"{top}/{TUNABLES}" if top else TUNABLES
        content[name] = File(name, next(file.data for file in made.generated if file.path == TUNABLES))
    digest = hashlib.sha256(f"{made.language} {site.arch} {code_hash(made.library) if made.library else ''}".encode())
    for file in sorted(content.values(), key=lambda file: file.path):
        digest.update(f"\0{file.path}\0{len(file.data)}\0".encode() + file.data)
    path = tuple(dict.fromkeys((top, *("" if folder == "." else folder for folder in task.build.include))))
    return BuiltTree(made.language, tuple(content.values()), path, made.library, digest.hexdigest(), made.seconds, made.log)


def _make(site: Site, task: Task, files: tuple[File, ...], dtypes: Mapping[str, str], out: Path) -> Made | Failure:
    size = sum(len(file.data) for file in files)
    if size > SOURCE_BYTES:
        return Failure(Reason.TOO_BIG, f"{size / MIB:.1f} MiB of source; a build takes {SOURCE_BYTES // MIB} MiB")
    language = language_of(task, site.arch)
    if isinstance(language, Failure):
        return language
    generated = _generated(task, files, dtypes)
    if isinstance(generated, Failure):
        return generated
    began, steps = time.monotonic(), language.plan(task, files, dtypes)
    log = run(site.walls, steps, {"generated": generated, "tree": (*_readable(task), *files)}, out)
    if isinstance(log, Failure):
        return log
    library = out if steps and steps[-1].output else None
    return Made(language.name, generated, library, time.monotonic() - began, log[:LOG_BYTES])


def run(
    walls: Walls, steps: tuple[base.Step, ...], content: Mapping[str, tuple[File, ...]], out: Path, profile: Profile = "builder"
) -> str | Failure:
    """Writes `content`, files of each place that steps may name, and runs the steps inside the walls. What they said; `out` is the
    output of the last one."""
    folder = walls.folder()
    try:
        for name in ("generated", "tree", "made"):
            if refused := _write(folder / name, content.get(name, ())):
                return refused
        return _run(walls, steps, folder, out, profile)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def language_of(task: Task, arch: str) -> base.Language | Failure:
    """The first language of the task that claims the entry and the further sources."""
    sources = (task.entry_path, *task.build.sources)
    known = (base.by_name(name, arch) for name in task.languages)
    found = next((language for language in known if language.claims(sources)), None)
    return found or Failure(Reason.LANGUAGE, f"{task.entry_path} is none of {', '.join(task.languages)}")


def _generated(task: Task, files: tuple[File, ...], dtypes: Mapping[str, str]) -> tuple[File, ...] | Failure:
    """keepfast.h, the shim, and the tunables, which are there also when the task has none."""
    text = next((file.data for file in files if file.path == task.tunables), b"") if task.tunables else b""
    try:
        space = tunables.parse(text.decode())
    except (TaskError, UnicodeDecodeError) as problem:
        return Failure(Reason.BAD_TUNABLES, problem.what if isinstance(problem, TaskError) else "tunables.toml is not UTF-8")
    shim = abi.shim(task, dtypes)
    made = {
        "keepfast.h": abi.header(task, dtypes), "shim.c": shim, "shim.cpp": shim, "exports.map": EXPORTS,
        "keepfast_tunables.h": tunables.header(space), TUNABLES: tunables.python(space),
    }  # fmt: skip
    return tuple(File(name, text.encode()) for name, text in made.items())


def _readable(task: Task) -> tuple[File, ...]:
    """The human's files that the compiler may see, the entry among them: all but reference, baselines, deck and the task file."""
    root, folder = Path(task.root), Path(task.folder).resolve()
    named = (*task.build.sources, task.entry_path)
    folders = (f"{glob.escape(name)}/**" for name in task.build.include if name != ".")  # not the whole repository
    patterns = (*task.build.readable, *map(glob.escape, named), *folders)
    hidden = [folder / name.rstrip("/") for name in PROTECTED]
    wanted = (path for path in expand(root, patterns) if not any((root / path).resolve().is_relative_to(h) for h in hidden))
    return tuple(File(path, (root / path).read_bytes()) for path in wanted)


def _write(folder: Path, files: tuple[File, ...]) -> Failure | None:
    """Puts files below `folder`, readable by all; a later one replaces an earlier one of the same path."""
    folder.mkdir(mode=0o755)
    for file in files:
        if why := unfit(file.path):
            return Failure(Reason.GUARD, f"the path {file.path!r} {why}")
        try:
            (folder / file.path).parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            (folder / file.path).write_bytes(file.data)
        except OSError as problem:
            if problem.errno not in (errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ENAMETOOLONG):
                raise MachineError(f"cannot write the tree to compile: {problem}", next_step="df -h; keepfast doctor") from problem
            return Failure(Reason.GUARD, f"the path {file.path} cannot be made: {problem.strerror}")
    return None


def _run(walls: Walls, steps: tuple[base.Step, ...], folder: Path, out: Path, profile: Profile) -> str | Failure:
    """What the steps said, one after the other; the first that fails ends them."""
    places = {name: str(folder / name) for name in ("tree", "generated", "made", "scratch")}
    log = ""
    for step in steps:
        limits = step.limits or base.Limits(SECONDS, MEMORY_BYTES, SCRATCH_BYTES)
        target = out if step is steps[-1] else folder / "made" / step.output
        wall, end = _wall(places, step, limits, profile), time.monotonic() + limits.seconds
        said = _step(walls, wall, step.resolved(places), (step.output, target), end)
        log += _plain(said.log, places)
        if failure := said.failure or _judged(said.status, log, limits):
            return failure
    return log


def _wall(places: Mapping[str, str], step: base.Step, limits: base.Limits, profile: Profile) -> Wall:
    folders = (*step.path, str(native.compiler().parent), "/usr/local/bin", "/usr/bin", "/bin")
    return Wall(
        profile=profile,
        scratch=places["scratch"],
        read=(*toolchain.folders(), places["tree"], places["generated"], places["made"], *step.read),
        scratch_bytes=limits.scratch_bytes,
        memory_bytes=limits.memory_bytes,
        processes=PROCESSES,
        cpu_seconds=math.ceil(limits.seconds),
        file_bytes=OUTPUT_BYTES,
        env=(("PATH", os.pathsep.join(folders)), ("LC_ALL", "C"), ("SOURCE_DATE_EPOCH", "0"), *step.env),
    )


def _step(walls: Walls, wall: Wall, argv: tuple[str, ...], output: tuple[str, Path], deadline: float) -> Said:
    """Runs one command inside the walls and takes its output out of the scratch folder."""
    reader, writer = os.pipe()
    with open(reader, "rb", buffering=0) as messages:
        try:
            walled = walls.spawn(wall, argv, stdout=writer, stderr=writer)
        finally:
            os.close(writer)
        with walled:
            log = _listen(messages.fileno(), deadline)
            status = walled.wait(max(0.0, deadline - time.monotonic()))
            failure = _collect(walled, *output) if status == 0 and output[0] else None
    return Said(status, log, failure)


def _listen(fd: int, deadline: float) -> str:
    """What is written to `fd` until its other end closes or time is over: the first 64 KiB, the rest is read and dropped."""
    kept = b""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    while (left := deadline - time.monotonic()) > 0 and poll.poll(left * 1000):
        piece = os.read(fd, 65536)
        if not piece:
            break
        kept += piece[: LOG_BYTES - len(kept)]
    return kept.decode(errors="replace")


def _collect(walled: Walled, name: str, target: Path) -> Failure | None:
    """Copies a regular file out of the scratch folder; the name there may be anything by now."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=walled.scratch_fd)
    except OSError as problem:
        return Failure(Reason.BUILD, f"the compiler left no output: {problem.strerror}")
    with open(fd, "rb") as source:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode) or about.st_size > OUTPUT_BYTES:
            return Failure(Reason.BUILD_LIMIT, f"the output is larger than {OUTPUT_BYTES // MIB} MiB or no file")
        fresh = target.with_name(f".{target.name}.{os.getpid()}")
        fresh.write_bytes(source.read(OUTPUT_BYTES))
    fresh.chmod(0o644)
    fresh.replace(target)
    return None


# --------------------------------------------------------------------------------------------- sentences


def _plain(log: str, places: Mapping[str, str]) -> str:
    for name, path in places.items():
        log = log.replace(f"{path}/", "" if name != "scratch" else "scratch/")
    return log


def _judged(status: int | None, log: str, limits: base.Limits) -> Failure | None:
    if status == 0:
        return None
    if status is None:
        return Failure(Reason.BUILD_LIMIT, f"compiling took more than {limits.seconds:.0f} s")
    if status < 0 or EXHAUSTED.search(log):
        allowed = f"{limits.memory_bytes // MIB} MiB of memory, {limits.seconds:.0f} s or {OUTPUT_BYTES // MIB} MiB of output"
        return Failure(Reason.BUILD_LIMIT, f"compiling needs more than {allowed}")
    return Failure(Reason.BUILD, first_error(log))


def first_error(log: str) -> str:
    """The first error of a compiler's output in one line, as in `kernel.c:31: 'j' undeclared`."""
    found = [match for pattern in MESSAGES if (match := pattern.search(log))]
    if not found:
        return next((line.strip() for line in reversed(log.splitlines()) if line.strip()), "the compiler failed without a message")[:300]
    parts = min(found, key=lambda match: match.start()).groupdict()
    text = parts["text"].replace(" (first use in this function)", "").strip()[:300]
    if text.startswith("undefined reference"):
        return f"{text}: it is in no file of [build] sources"
    if not parts.get("line"):
        return f"{parts['tool']}: {text}" if "tool" in parts else text
    name = PurePosixPath(parts["file"]).name
    return f"assembler: {text}" if TEMPORARY.fullmatch(name) else f"{name}:{parts['line']}: {text}"
