"""The corpora as data: one file an entry, and what its first lines say.

A file begins with lines `# key: value`, in C `// key: value`:

    id        family letter, number, and a letter where there are several; honest ones are L and a number
    family    timing, tampering, replay, correctness, overfit, compliance or metric; of an honest one, of the cheat it looks like
    language  c, python, triton, cuda, torch or cute; `data` for what is no program
    task      the task it is an entry of, among those of its kind
    expect    reasons that may end it, the one that is meant first; of honest ones `pass`, or `faster` when it has to be kept
    layer     where it may end, likewise (cheats)
    tries     what it tries, or `does` what it does (honest), and `like`: the entry that it could be taken for
    timed     yes: it takes the whole ladder
    slow      yes: it hangs or works for seconds
    quick     yes: among those of `--quick`; kinds that need no compiler all are
    twice     yes: captured twice after it passed, as the confirm rounds do (gpu)
    against   the kernel it is judged against, in place of the task's start (cpu)
    open      why nothing ends it yet, or why it does not pass
    idle      Triton functions that a compilation of the file alone does not reach (gpu)

The folder is the kind. `hostile.toml` names attacks of another folder, each by the file's name (see `attacks`). Must not know how
anything is tried.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from keepfast.errors import UsageError

FAMILIES = {"T": "timing", "H": "tampering", "R": "replay", "G": "correctness", "O": "overfit", "C": "compliance", "B": "metric"}
LANGUAGES = ("c", "python", "triton", "cuda", "torch", "cute", "data")
SUFFIXES = {"gpu": ".py", "cpu": ".c", "plan": ".toml", "origin": ".toml", "task": ".toml", "proposal": ".toml", "statistics": ".toml"}
KINDS = ("plan", "origin", "task", "proposal", "statistics", "cpu", "hostile", "gpu")  # in this order: cheap ones first
INSTANT = ("plan", "origin", "task", "proposal", "statistics")
_KEY = re.compile(r"(?:#|//) ([a-z]+): (.*)")


class Entry(Struct, frozen=True):
    """One cheat, or one honest thing that looks like one."""

    name: str
    kind: str
    honest: bool
    header: tuple[tuple[str, str], ...]
    source: str  # the whole file; of `hostile` the attack's
    path: Path

    @property
    def said(self) -> dict[str, str]:
        return dict(self.header)

    @property
    def id(self) -> str:
        return self.said.get("id", "")

    @property
    def task(self) -> str:
        return self.said.get("task", "")

    @property
    def words(self) -> str:
        return self.said.get("does" if self.honest else "tries", "")

    @property
    def open(self) -> str:
        return self.said.get("open", "")

    @property
    def quick(self) -> bool:
        return self.has("quick") or self.kind in INSTANT

    def several(self, key: str) -> tuple[str, ...]:
        """A value that is a list."""
        return tuple(word.strip() for word in self.said.get(key, "").split(",") if word.strip())

    def has(self, key: str) -> bool:
        return self.said.get(key, "") == "yes"


class Folders(Struct, frozen=True):
    """Where things lie: the two corpora, the attacks in C, the tasks of each judge."""

    cheats: Path
    honest: Path
    hostile: Path
    cpu: Path
    gpu: Path


def folders() -> Folders:
    """In the wheel beside this file, in a checkout under tests/ and benchmarks/."""
    here = Path(__file__).parent
    if (here / "cheats").is_dir():
        return Folders(*(here / name for name in ("cheats", "honest", "hostile", "tasks_cpu", "tasks_gpu")))
    root = here.parents[2]
    below = ("tests/cheats", "tests/honest", "benchmarks/hostile", "tests/redteam/tasks", "tests/gpu/tasks")
    return Folders(*(root / name for name in below))


def header(source: str) -> dict[str, str]:
    """The lines `# key: value` that a source begins with. ValueError for a key that comes twice."""
    found: dict[str, str] = {}
    for line in source.splitlines():
        match = _KEY.fullmatch(line.rstrip())
        if match is None:
            break
        if match[1] in found:
            raise ValueError(f"`{match[1]}` comes twice")
        found[match[1]] = match[2].strip()
    return found


def entries(at: Folders) -> tuple[Entry, ...]:
    """All of them, kind by kind and task by task; what takes long comes last. UsageError when there are none."""
    found = [*_files(at.cheats, False), *_hostile(at), *_files(at.honest, True)]
    if not found:
        step = "a folder with cheats/ and honest/, each with a folder for every kind: docs/redteam.md"
        raise UsageError("no entry", where=str(at.cheats.parent), next_step=step)
    order = {kind: n for n, kind in enumerate(KINDS)}
    return tuple(sorted(found, key=lambda e: (order[e.kind], e.has("slow"), e.task, e.has("timed"), e.honest, e.name)))


def _files(folder: Path, honest: bool) -> Iterator[Entry]:
    for kind, suffix in SUFFIXES.items():
        for path in sorted((folder / kind).glob(f"*{suffix}")):
            source = path.read_text(encoding="utf-8")
            try:
                said = header(source)
            except ValueError as error:
                raise UsageError(str(error), where=str(path)) from None
            yield Entry(path.stem, kind, honest, tuple(said.items()), source, path)


def _hostile(at: Folders) -> Iterator[Entry]:
    """What `hostile.toml` names. Reasons, and what is slow, are those that the attack itself says."""
    index = at.cheats / "hostile.toml"
    if not index.is_file():
        return
    for name, said in tomllib.loads(index.read_text(encoding="utf-8")).items():
        path = at.hostile / f"{name}.c"
        source = path.read_text(encoding="utf-8") if path.is_file() else ""
        own = dict(re.findall(r"^// (expects|slow): (.+)$", source, re.M))
        more = {"expect": ", ".join(own["expects"].split())} if own else {}
        slow = {"slow": "yes"} if "slow" in own else {}
        yield Entry(name, "hostile", False, tuple(({"language": "c", "task": "softmax"} | more | slow | said).items()), source, path)
