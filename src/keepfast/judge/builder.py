"""The build rung: a candidate's files become a shared object, compiled inside the walls.

Owns the tree the compiler sees (the task's readable files and the candidate's, never reference, baselines or deck), its limits, and
the sentence for a failure. Nothing of the result is loaded or executed here.
"""

from __future__ import annotations

import errno
import glob
import math
import os
import re
import select
import shutil
import stat
import time
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from msgspec import Struct

from keepfast import native
from keepfast.errors import MachineError, TaskError
from keepfast.judge import toolchain
from keepfast.judge.elf import code_hash
from keepfast.judge.endings import Failure
from keepfast.lang import base
from keepfast.model import File, Reason, Task
from keepfast.task import abi, tunables
from keepfast.task.paths import expand, unfit
from keepfast.task.places import PROTECTED
from keepfast.walls.base import MIB, Wall, Walled, Walls

SECONDS = 20.0
MEMORY_BYTES = 2048 * MIB
OUTPUT_BYTES = 64 * MIB
SCRATCH_BYTES = 256 * MIB
SOURCE_BYTES = 16 * MIB
LOG_BYTES = 64 << 10
PROCESSES = 32
MESSAGES = (
    re.compile(r"^(?:(?P<file>[^\s:][^:\n]*):(?:(?P<line>\d+):(?:\d+:)?)? )(?:fatal )?error: (?P<text>.+)$", re.M),
    re.compile(r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+): Error: (?P<text>.+)$", re.M),  # the assembler's
    re.compile(r"(?P<text>(?:undefined reference to|multiple definition of) .+)$", re.M),
)
TEMPORARY = re.compile(r"cc\w{6}\.s")
EXHAUSTED = re.compile(r"out of memory|memory exhausted|Cannot allocate memory|terminated program|No space left on device|File too large")


class Built(Struct, frozen=True):
    """A shared object. `code_hash` see `elf.code_hash`; `seconds` of compiling; `log` what the compiler said, at most 64 KiB."""

    path: Path
    code_hash: str
    seconds: float
    log: str = ""


class Said(Struct, frozen=True):
    """How a step ended. `status` None: it was still running when its time was over. `failure`: its output could not be taken."""

    status: int | None
    log: str
    failure: Failure | None = None


def build(walls: Walls, task: Task, files: tuple[File, ...], dtypes: Mapping[str, str], out: Path) -> Built | Failure:
    """Compiles `files` into `out`. `dtypes`: tensor name -> dtype name. A candidate's mistake is a Failure, a lack of ours MachineError."""
    size = sum(len(file.data) for file in files)
    if size > SOURCE_BYTES:
        return Failure(Reason.TOO_BIG, f"{size / MIB:.1f} MiB of source; a build takes {SOURCE_BYTES // MIB} MiB")
    sources = (task.entry_path, *task.build.sources)
    language = next((known for name in task.languages if (known := base.by_name(name)).claims(sources)), None)
    if language is None:
        return Failure(Reason.LANGUAGE, f"{task.entry_path} is none of {', '.join(task.languages)}")
    generated = _generated(task, files, dtypes)
    if isinstance(generated, Failure):
        return generated
    folder = walls.folder()
    try:
        for name, content in (("generated", generated), ("tree", (*_readable(task), *files)), ("made", ())):
            if refused := _write(folder / name, content):
                return refused
        return _run(walls, language.plan(task, files, dtypes), folder, out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _generated(task: Task, files: tuple[File, ...], dtypes: Mapping[str, str]) -> tuple[File, ...] | Failure:
    """keepfast.h, the shim and keepfast_tunables.h, which is there also when the task has no tunables."""
    text = next((file.data for file in files if file.path == task.tunables), b"") if task.tunables else b""
    try:
        space = tunables.parse(text.decode())
    except (TaskError, UnicodeDecodeError) as problem:
        return Failure(Reason.BAD_TUNABLES, problem.what if isinstance(problem, TaskError) else "tunables.toml is not UTF-8")
    made = {"keepfast.h": abi.header(task, dtypes), "shim.c": abi.shim(task, dtypes), "keepfast_tunables.h": tunables.header(space)}
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


def _run(walls: Walls, steps: tuple[base.Step, ...], folder: Path, out: Path) -> Built | Failure:
    places = {name: str(folder / name) for name in ("tree", "generated", "made", "scratch")}
    began = time.monotonic()
    log = ""
    for step in steps:
        target = out if step is steps[-1] else folder / "made" / step.output
        said = _step(walls, _wall(places), step.resolved(places), (step.output, target), began + SECONDS)
        log += _plain(said.log, places)
        if failure := said.failure or _judged(said.status, log):
            return failure
    return Built(out, code_hash(out), time.monotonic() - began, log[:LOG_BYTES])


def _wall(places: Mapping[str, str]) -> Wall:
    path = f"{native.compiler().parent}:/usr/local/bin:/usr/bin:/bin"
    return Wall(
        profile="builder",
        scratch=places["scratch"],
        read=(*toolchain.folders(), places["tree"], places["generated"], places["made"]),
        scratch_bytes=SCRATCH_BYTES,
        memory_bytes=MEMORY_BYTES,
        processes=PROCESSES,
        cpu_seconds=math.ceil(SECONDS),
        file_bytes=OUTPUT_BYTES,
        env=(("PATH", path), ("LC_ALL", "C"), ("SOURCE_DATE_EPOCH", "0")),
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
            failure = _collect(walled, *output) if status == 0 else None
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


def _judged(status: int | None, log: str) -> Failure | None:
    if status == 0:
        return None
    if status is None:
        return Failure(Reason.BUILD_LIMIT, f"compiling took more than {SECONDS:.0f} s")
    if status < 0 or EXHAUSTED.search(log):
        limits = f"{MEMORY_BYTES // MIB} MiB of memory, {SECONDS:.0f} s or {OUTPUT_BYTES // MIB} MiB of output"
        return Failure(Reason.BUILD_LIMIT, f"compiling needs more than {limits}")
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
        return text
    name = PurePosixPath(parts["file"]).name
    return f"assembler: {text}" if TEMPORARY.fullmatch(name) else f"{name}:{parts['line']}: {text}"
