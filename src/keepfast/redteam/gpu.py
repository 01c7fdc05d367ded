"""GPU candidates through the GPU judge, on a card: everything but timing, or the whole ladder for those that need it.

Owns the judge of the task at hand; one is kept at a time. Must not know the corpus.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path

from keepfast import settings, shop
from keepfast.errors import MachineError
from keepfast.judge.gpu.arms import Arm
from keepfast.judge.gpu.judge import Checked, GpuJudge
from keepfast.judge.gpu.launchers import Launcher, Launchers
from keepfast.materialise import tree_hash
from keepfast.model import Candidate, Event, File, Verdict
from keepfast.redteam.entries import Entry, Folders
from keepfast.redteam.outcome import Found, of_verdict
from keepfast.redteam.proposals import WHO

SETTLED_S = 20.0
HANG_S = 15.0  # for a kernel that never ends
LEFT = b"keepfast-corpus-left-behind"  # in the command line of a process that a cheat starts


class Stand:
    """One judge on a task in a repository of its own. `told`: what it said while it worked."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self.stack, self.told, self.codes = folder, stack, list[Event](), dict[str, int]()
        opened = shop.open_shop(folder)
        assert opened.station is not None
        stack.callback(opened.station.close)  # also when what follows fails
        self.shop = shop.measured(opened)
        made = stack.enter_context(shop.judge(self.shop, self.told.append, self.codes.get))
        assert isinstance(made, GpuJudge)
        self.judge = made
        entry = Path(self.shop.task.root) / self.shop.task.entry_path
        self.start = self.candidate(entry.read_text(), n=1)
        self.ready = self.judge.ready(self.start, None)

    @classmethod
    def open(cls, task: Path, place: Path) -> Stand:
        """A copy of the task below `place`, committed, and its judge."""
        shutil.copytree(task, place / task.name, ignore=shutil.ignore_patterns("__pycache__"))
        for argv in (("init", "-q"), ("add", "-A"), (*WHO, "commit", "-qm", "start")):
            subprocess.run(["git", *argv], cwd=place, check=True, env=settings.git_environment(), stdin=subprocess.DEVNULL)
        with ExitStack() as stack:
            made = cls(place / task.name, stack)
            made.stack = stack.pop_all()
            return made

    def close(self) -> None:
        self.stack.close()

    def candidate(self, source: str | dict[str, str], n: int = 0) -> Candidate:
        """One source for the entry, or several by path."""
        given = {self.shop.task.entry_path: source} if isinstance(source, str) else source
        files = tuple(File(path, text.encode()) for path, text in given.items())
        return Candidate(files, tree_hash(files), "", n)

    def judged(self, source: str | dict[str, str]) -> Verdict:
        return self.judge.evaluate(self.candidate(source), self.start, ())

    def checked(self, source: str | dict[str, str]) -> Verdict:
        """Everything but timing: as if it were the start."""
        made = self.candidate(source)
        found = self.judge._check(self.judge._ladder(), made, made)
        return found if isinstance(found, Verdict) else self.ready

    def captured_twice(self, source: str) -> Verdict:
        """Everything but timing, and then what the confirm rounds begin with."""
        made, ladder = self.candidate(source), self.judge._ladder()
        found = self.judge._check(ladder, made, made)
        if not isinstance(found, Checked):
            return found
        failure = self.judge._fresh(found.artifact)
        return self.ready if failure is None else ladder.fail("time", failure)

    def of(self, entry: Entry) -> Verdict:
        """The verdict on an entry, as far up the ladder as its header says. What is known to hang is not waited for as long."""
        with self._impatient() if entry.has("slow") else nullcontext():
            return self._of(entry)

    @contextmanager
    def _impatient(self) -> Iterator[None]:
        """Captures and launches get HANG_S instead of a minute."""
        judge, arms, checker = self.judge, self.judge.arms, self.judge.checker
        patient = checker.launchers
        arms.of = lambda candidate: Arm(candidate.tree, judge.task, candidate, HANG_S)  # type: ignore[method-assign]
        checker.launchers = Impatient(patient)  # type: ignore[assignment]
        try:
            yield
        finally:
            checker.launchers = patient
            del arms.of

    def _of(self, entry: Entry) -> Verdict:
        if entry.has("timed"):
            return self.judged(entry.source)
        return self.captured_twice(entry.source) if entry.has("twice") else self.checked(entry.source)


class Impatient:
    """Launchers whose launches get HANG_S."""

    def __init__(self, launchers: Launchers) -> None:
        self.launchers = launchers

    def start(self) -> Launcher:
        made = self.launchers.start()
        run = made.run
        made.run = lambda order, timeout_s=HANG_S: run(order, timeout_s)  # type: ignore[method-assign]
        return made


class Stands:
    """The judge of the task that was asked for last. Close it, and nothing of it is left."""

    def __init__(self, at: Folders) -> None:
        self.at, self._name = at, ""
        self._stack = ExitStack()
        self._stand: Stand | None = None

    def close(self) -> None:
        self._stand, self._name = None, ""
        self._stack.close()

    def verdict(self, entry: Entry) -> Found:
        try:
            found = of_verdict(self._of(entry.task).of(entry))
        except Exception:  # raised again: the next entry gets a judge of its own
            self.close()
            raise
        if left := left_behind():
            return Found(False, "left behind", "walls", f"processes {', '.join(left)}")
        return found

    def _of(self, task: str) -> Stand:
        if self._stand is None or self._name != task:
            self.close()
            place = Path(tempfile.mkdtemp(prefix="keepfast-redteam-")).resolve()
            self._stack.callback(shutil.rmtree, place, ignore_errors=True)
            self._stand, self._name = Stand.open(self.at.gpu / task, place), task
            self._stack.callback(self._stand.close)
            if not self._stand.ready.kept:  # else every honest entry would be a false alarm
                raise MachineError(f"the start of task {task} does not pass: {self._stand.ready.detail}", next_step="keepfast doctor")
        return self._stand


def left_behind() -> list[str]:
    """Processes on this machine that a candidate started and that outlive it, when they had time to end."""
    end = time.monotonic() + SETTLED_S
    while (found := _marked()) and time.monotonic() < end:
        time.sleep(0.5)
    return found


def _marked() -> list[str]:
    found: list[str] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += [path.parent.name] if LEFT in path.read_bytes() else []
        except OSError:
            continue
    return found
