"""Runs somebody's program with the hook, and makes of what its processes left a folder that `init --captured` reads.

The program keeps its terminal, signals and exit code. Must not know tasks.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from msgspec import Struct
from msgspec.structs import replace

from keepfast.errors import UsageError
from keepfast.harvest import folder, logs, profile
from keepfast.harvest.records import SCHEMA, Call, Captured, Part, Profile, Sample, Target

INJECTED = Path(__file__).parent / "injected"
NOT_FOUND, NO_PERMISSION, SIGNALLED = 127, 126, 128  # exit codes, as a shell says them
KINDS = 4096


class Wish(Struct, frozen=True):
    """`samples`: calls whose contents are kept at most; `megabytes`: of contents in memory of no process and on disk of each."""

    target: Target
    command: tuple[str, ...]
    samples: int = 64
    megabytes: int = 256
    seed: int = 0


def prepare(work: Path, wish: Wish) -> Path:
    """The folder to be put first on PYTHONPATH."""
    site, out = work / "site", work / "out"
    shutil.copytree(INJECTED, site, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    (site / "__init__.py").unlink(missing_ok=True)
    out.mkdir()
    target = {"kind": wish.target.kind, "name": wish.target.name, "module": wish.target.module, "path": wish.target.path}
    settings = {"target": target, "out": str(out), "seed": wish.seed, "bytes": wish.megabytes << 20}
    (site / "settings.json").write_text(json.dumps(settings))
    return site


def run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """The program's exit code, 128 and the number of the signal that ended it. Ctrl-C is the program's; SIGTERM is handed on."""
    try:
        process = subprocess.Popen(command, env=environment)
    except FileNotFoundError:
        raise UsageError(f"{command[0]} is not found", where="COMMAND") from None
    except OSError as problem:
        raise UsageError(f"{command[0]} cannot be started: {problem.strerror}", where="COMMAND") from None
    with _signals(process):
        code = process.wait()
    return code if code >= 0 else SIGNALLED - code


@contextmanager
def _signals(process: subprocess.Popen[bytes]) -> Iterator[None]:
    def hand_on(number: int, frame: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            process.send_signal(number)

    def leave_it(number: int, frame: FrameType | None) -> None:
        """The terminal sends it to the program as well."""

    before = [(n, signal.signal(n, f)) for n, f in ((signal.SIGINT, leave_it), (signal.SIGTERM, hand_on), (signal.SIGHUP, hand_on))]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


# --------------------------------------------------------------------------------------------- what came of it


def gather(work: Path, wish: Wish, code: int) -> tuple[Captured, list[Path]]:
    """The record, and where the contents of each of its samples lie."""
    left = logs.read(work / "out")
    kinds, over = logs.calls(left, KINDS)
    samples, paths = _samples(left, kinds, wish)
    where = next((h for h in left.hooked if not h.problem), logs.Hooked())
    header = left.header
    captured = Captured(
        schema=SCHEMA,
        target=wish.target,
        command=wish.command,
        exit_code=code,
        processes=left.processes,
        calls=header[0],
        looked=header[1],
        in_graphs=header[2],
        traced=header[3],
        unlisted=header[4] + over,
        errors=header[5],
        file=where.file,
        line=where.line,
        operator=where.schema,
        kinds=kinds,
        samples=samples,
        profiles=_profiles(samples, paths),
        versions=left.versions | ({"python": where.python} if where.python else {}),
    )
    return replace(captured, notes=_notes(captured, left)), paths


def _samples(left: logs.Left, kinds: tuple[Call, ...], wish: Wish) -> tuple[tuple[Sample, ...], list[Path]]:
    """Of each kind the smallest draws of all processes, so that each call was as likely; in turns, until there are enough."""
    index = {call.values: i for i, call in enumerate(kinds)}
    queues: dict[int, list[logs.Taken]] = {}
    for taken in sorted((t for t in left.taken if t.values in index), key=lambda t: t.draw):
        queues.setdefault(index[taken.values], []).append(taken)
    found: list[tuple[Sample, Path]] = []
    space = wish.megabytes << 20
    turns = [
        (i, queue[n]) for n in range(max(map(len, queues.values()), default=0)) for i, queue in sorted(queues.items()) if n < len(queue)
    ]
    for call, taken in turns:
        sample = _sample(len(found), call, taken, space)
        if sample is not None and len(found) < wish.samples:
            found.append((sample, taken.path))
            space -= sample.nbytes
    return tuple(s for s, _ in found), [p for _, p in found]


def _sample(number: int, call: int, taken: logs.Taken, space: int) -> Sample | None:
    """None when there is no room, or the file is not what its log says."""
    try:
        data = logs.plain_file(taken.path, space)
    except (OSError, ValueError):
        return None
    if not all(logs.fits_part(part, len(data)) for part in taken.parts):
        return None
    digest = hashlib.sha256(data).hexdigest()
    return Sample(f"{number:04}.bin", digest, len(data), call, taken.parts, taken.seen_after, taken.written, taken.returned)


def _profiles(samples: tuple[Sample, ...], paths: list[Path]) -> tuple[Profile, ...]:
    found: dict[str, list[tuple[Part, bytes]]] = {}
    for sample, path in zip(samples, paths, strict=True):
        data = logs.plain_file(path, folder.SAMPLE_BYTES)
        for part in sample.parts:
            if part.place < 0:
                found.setdefault(part.name, []).append((part, folder.piece(data, part)))
    profiles = (profile.of_argument(name, parts) for name, parts in found.items())
    return tuple(one for one in profiles if one is not None)


def _notes(captured: Captured, left: logs.Left) -> tuple[str, ...]:
    found = [f"{problem}{f' ({n} times)' if n > 1 else ''}" for problem, n in left.problems.most_common(8)]
    if not left.processes:
        found.append("the program never imported it: no Python of the program saw the hook, or none imported that module")
    elif not captured.calls and not captured.traced and not left.problems:
        found.append("it was imported, and never called")
    if captured.traced:
        found.append(
            f"a compiler traced it {captured.traced} times; calls from compiled code are not seen: --eager turns torch.compile off"
        )
    if captured.in_graphs:
        found.append(
            f"{captured.in_graphs} calls were captured into CUDA graphs: their replays are not seen, and their contents are not kept"
        )
    if captured.looked < captured.calls:
        found.append(f"looked at {captured.looked} of {captured.calls} calls, so as to cost little: counts are estimates")
    if captured.unlisted:
        found.append(f"{captured.unlisted} calls were of too many different kinds to list")
    if captured.errors:
        found.append(f"the hook failed {captured.errors} times, and let the program be")
    return tuple(found)
