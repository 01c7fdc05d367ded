"""Where a command stands: the repository around the working folder, its ledger, the run that is meant, and who runs it now.

Commands that read open the ledger readonly, so they work while a run is going on. Commands that change something go through
`command`: into the inbox of a run that is going on, straight into the ledger otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from keepfast.errors import TaskError, UsageError

if TYPE_CHECKING:
    from keepfast.ledger import Holder, Ledger
    from keepfast.model import Run, Task
    from keepfast.repo import Repo


PREPARING = "a check, a calibration or the start of a run"


class Place(Struct, frozen=True):
    repo: Repo
    ledger: Ledger
    run: Run
    holder: Holder | None  # who runs on this ledger now, be it this run or another

    @property
    def running(self) -> bool:
        """Whether a process runs this run now. A holder without a run's name checks, calibrates or prepares a run."""
        return self.holder is not None and self.holder.run == self.run.id

    def holder_text(self) -> str:
        """`pid 8123, started 22:41`; empty when nobody runs this run."""
        return said(self.holder) if self.holder is not None and self.running else ""

    def busy_text(self) -> str:
        """Who else judges on this ledger now, in words; empty when nobody does."""
        if self.holder is None or self.running:
            return ""
        return f"{f'run {self.holder.run}' if self.holder.run else PREPARING} is going on ({said(self.holder)})"


@contextmanager
def opened(*, readonly: bool) -> Iterator[tuple[Repo, Ledger]]:
    """The repository around the working folder and its ledger. UsageError where there is none: a command never makes one."""
    from keepfast.ledger import Ledger
    from keepfast.repo import Repo

    repo = Repo.find(Path.cwd())
    with Ledger.open(repo.state, readonly=True) as looked:
        if readonly:
            yield repo, looked
            return
    with Ledger.open(repo.state) as ledger:
        yield repo, ledger


@contextmanager
def here(run_id: str = "", *, readonly: bool = True) -> Iterator[Place]:
    """The run `run_id`; without a name the run that is going on, else the newest. UsageError when there is none."""
    with opened(readonly=readonly) as (repo, ledger):
        holder = ledger.holder()
        run = ledger.run(run_id) if run_id else _meant(ledger, holder)
        if run is None:
            raise _no_run(repo, holder)
        yield Place(repo, ledger, run, holder)


def _meant(ledger: Ledger, holder: Holder | None) -> Run | None:
    going = [r for r in ledger.runs() if holder is not None and r.id == holder.run]
    return going[0] if going else ledger.latest()


def _no_run(repo: Repo, holder: Holder | None) -> UsageError:
    if holder is not None:
        return UsageError(f"{PREPARING} is going on ({said(holder)}): no run to show yet", next_step="keepfast log --follow   waits for it")
    return UsageError("no run in this repository yet", where=str(repo.root), next_step="keepfast run TASK")


def said(holder: Holder) -> str:
    from keepfast.report.numbers import clock

    return f"pid {holder.pid}, started {clock(holder.started)}"


def command(place: Place, name: str, argument: str) -> bool:
    """Hands `name` to the run that is meant: True when it is going on and does it at its next turn, False when it is noted for --resume.

    UsageError when another run holds the ledger: that one would take it.
    """
    if place.running:
        place.ledger.post(name, argument)
        return True
    with place.ledger.hold(place.run.id):
        place.ledger.post(name, argument)
        place.ledger.take(place.run)
    return False


def task_of(place: Place) -> Task | None:
    """The run's task as its folder says it now, with the goal and budget of the run; None when the folder is gone or has changed."""
    from keepfast.task.load import load

    try:
        task = load(place.repo.root / place.run.task_folder)
    except TaskError:
        return None
    return _as_run(task, place) if task.hash == place.run.task_hash else None


def _as_run(task: Task, place: Place) -> Task:
    """Goal and budget as the command line gave them, and as they were raised since."""
    from keepfast.options import as_begun
    from keepfast.progress import raised

    begun = as_begun(task, place.run)
    words = " ".join(c.argument for c in place.ledger.commands(place.run.id) if c.command == "budget")
    return replace(begun, budget=raised(begun.budget, words))
