"""The tests of this folder in shards: those that time nothing beside each other on one card, then the others one after the other.

Owns which tests are a shard, the order, and what is remembered of each, so that a start goes on where one was killed. Needs no GPU itself.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import xml.etree.ElementTree as xml
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

ROOT = Path(__file__).resolve().parents[2]
HERE = "tests/gpu"
LOOK_S = 0.2
SAID = 300  # characters of why a test failed


class Shard(Struct, frozen=True):
    """`words` after `pytest`; `alone`: nothing else of ours may use the card meanwhile. `seconds`: a guess."""

    name: str
    words: tuple[str, ...]
    alone: bool
    seconds: float


class Ended(Struct, frozen=True):
    """How a shard ended. `whole`: pytest came to its end, whatever it found. `failed`: (test, why)."""

    name: str
    status: int | None
    seconds: float
    whole: bool = False
    passed: int = 0
    skipped: int = 0
    failed: tuple[tuple[str, str], ...] = ()


def _beside(name: str, file: str, parts: int, seconds: float) -> Iterator[Shard]:
    for n in range(1, parts + 1):
        part = ("--part", f"{n}/{parts}") if parts > 1 else ()
        label = f"{name}_{n}" if parts > 1 else name
        yield Shard(label, (f"{HERE}/{file}", "-m", "not alone", *part), False, seconds)


def _alone(name: str, files: Sequence[str], seconds: float) -> Shard:
    return Shard(name, (*(f"{HERE}/{file}" for file in files), "-m", "alone"), True, seconds)


def _engine() -> tuple[Shard, ...]:
    """Tests of the engine on a card, where there are any: none of them is beside another's clock."""
    files = sorted(path.name for path in (ROOT / HERE).glob("test_engine*.py"))
    return (Shard("engine", tuple(f"{HERE}/{file}" for file in files), True, 55.0),) if files else ()


SHARDS = (
    *_beside("oracle", "test_oracle.py", 1, 80.0),
    *_beside("capture", "test_capture_worker.py", 3, 110.0),
    *_beside("onboard", "test_onboard.py", 4, 130.0),
    *_beside("corpus", "test_corpus.py", 7, 160.0),
    _alone("card", ("test_launcher_contents.py", "test_oracle.py"), 50.0),
    _alone("judge", ("test_judge.py", "test_corpus.py"), 140.0),  # together: one judge of the task norm serves both
    *_engine(),
    _alone("measured", ("test_onboard.py",), 50.0),
)


class Runner:
    """Shards in order until `end`; each one's result, output and JUnit file in `out`."""

    def __init__(self, out: Path, end: float, more: Sequence[str] = (), say: Callable[[str], None] = print) -> None:
        """`end`: by the monotonic clock. `more`: words for every pytest."""
        self.out, self.end, self.more, self.say = out, end, tuple(more), say

    def run(self, shards: Sequence[Shard]) -> tuple[Ended, ...]:
        self.out.mkdir(parents=True, exist_ok=True)
        done = [found for s in shards if (found := self.known(s)) is not None]
        todo = [s for s in shards if self.known(s) is None]
        done += self._together([s for s in todo if not s.alone])
        for shard in (s for s in todo if s.alone):
            if time.monotonic() + shard.seconds / 2 < self.end:
                done += self._together([shard])
        return tuple(done)

    def known(self, shard: Shard) -> Ended | None:
        """What an earlier start has finished."""
        path = self.out / f"{shard.name}.json"
        try:
            found = msgspec.json.decode(path.read_bytes(), type=Ended) if path.exists() else None
        except msgspec.MsgspecError:
            return None
        return found if found is not None and found.whole else None

    def _together(self, shards: Sequence[Shard]) -> list[Ended]:
        running = {s.name: (self._begun(s), time.monotonic()) for s in shards}
        done: list[Ended] = []
        try:
            while running:
                for name, (process, began) in tuple(running.items()):
                    if process.poll() is not None:
                        done.append(self._written(self._ended(name, process.returncode, time.monotonic() - began)))
                        del running[name]
                if time.monotonic() > self.end:
                    break
                time.sleep(LOOK_S)
        finally:
            for name, (process, began) in running.items():
                process.kill()
                process.wait()
                done.append(self._written(self._ended(name, None, time.monotonic() - began)))
        return done

    def _begun(self, shard: Shard) -> subprocess.Popen[bytes]:
        junit = self.out / f"{shard.name}.xml"
        junit.unlink(missing_ok=True)
        ours = ("-o", "filterwarnings=default", "-p", "no:cacheprovider", "-rfE", "--tb=short", f"--junit-xml={junit}", *self.more)
        with (self.out / f"{shard.name}.txt").open("wb") as log:
            argv = (sys.executable, "-m", "pytest", *shard.words, *ours)
            return subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment())

    def _ended(self, name: str, status: int | None, seconds: float) -> Ended:
        """Pytest says 0 or 1 when it came to its end; where everything was skipped nothing is known."""
        path = self.out / f"{name}.xml"
        if status not in (0, 1) or not path.exists():
            return Ended(name, status, round(seconds, 1))
        cases = list(xml.parse(path).getroot().iter("testcase"))
        bad = [(c, kind) for c in cases for kind in ("failure", "error") if c.find(kind) is not None]
        failed = tuple((c.get("name") or "", " ".join((c.find(kind).get("message") or "").split())[:SAID]) for c, kind in bad)  # type: ignore[union-attr]
        skipped = sum(c.find("skipped") is not None for c in cases)
        return Ended(name, status, round(seconds, 1), len(cases) > skipped, len(cases) - len(failed) - skipped, skipped, failed)

    def _written(self, found: Ended) -> Ended:
        (self.out / f"{found.name}.json").write_bytes(msgspec.json.encode(found))
        self.say(line(found))
        return found


def environment() -> dict[str, str]:
    """Ours, with this checkout to import from."""
    places = (str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", ""))
    return os.environ | {"PYTHONPATH": os.pathsep.join(p for p in places if p), "PYTHONDONTWRITEBYTECODE": "1"}


def line(found: Ended) -> str:
    how = "" if found.whole else "   DID NOT END" if found.status is None else f"   NOTHING RAN, exit code {found.status}"
    said = f"{found.name:<12} {found.seconds:6.1f} s  {found.passed} passed, {len(found.failed)} failed, {found.skipped} skipped{how}"
    return "\n".join([said, *(f"    {name}: {why}" for name, why in found.failed)])
