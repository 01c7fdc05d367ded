"""Where a task stands for those who read: the task, its newest run if it has one, the champion's files, the ideas.

Opens the ledger readonly, and does without one: before a first run there is only the task's folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from keepfast.errors import UsageError

if TYPE_CHECKING:
    from keepfast.ledger import Ledger
    from keepfast.model import Candidate, Experiment, Idea, Run, Task
    from keepfast.repo import Repo


class Stand(Struct, frozen=True):
    """`run` None: this task, as it is now, had no run yet."""

    task: Task
    repo: Repo | None
    ledger: Ledger | None
    run: Run | None

    def champion(self) -> Candidate:
        """The files of the last keep; before a run those of the working tree."""
        from keepfast.materialise import Workshop, tree_hash
        from keepfast.model import Candidate, File
        from keepfast.task.paths import expand

        best = self.ledger.champion(self.run.id) if self.ledger and self.run else None
        if best is not None and self.repo is not None:
            return Workshop(self.task, self.repo).at(best.commit, best.n)
        root = Path(self.task.root)
        paths = [p for p in expand(root, self.task.editable) if not (root / p).is_symlink()]
        files = tuple(File(p, (root / p).read_bytes()) for p in paths)
        return Candidate(files, tree_hash(files), "")

    def reference(self) -> str:
        """The text of reference.py; empty where there is none."""
        path = Path(self.task.folder) / "reference.py"
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""

    def ideas(self) -> tuple[Idea, ...]:
        return self.ledger.ideas(self.task.name) if self.ledger else ()

    def in_hand(self) -> int | None:
        """The idea that is being tried, the newest of several."""
        return max((i.n for i in self.ideas() if i.state == "trying"), default=None)

    def budget_left(self, history: tuple[Experiment, ...]) -> str:
        from keepfast.model import Kind
        from keepfast.progress import Spent, left
        from keepfast.propose.tries import counted

        dollars = self.ledger.spent(self.run.id)[0] if self.ledger and self.run else 0.0
        real = [e for e in history if e.verdict.kind is not Kind.VOID]
        dry = next((i for i, e in enumerate(reversed(real)) if e.verdict.kept), len(real))
        asked = counted(self.ledger.notes(self.run.id)) if self.ledger and self.run else 0
        return left(self.task.budget, Spent(len(real) + asked, sum(e.seconds for e in history) / 3600, dollars, dry))


@contextmanager
def standing(name: Path) -> Iterator[Stand]:
    """The task `name`; the one of the newest run when none is named and there is none in this folder."""
    from keepfast.ledger import Ledger
    from keepfast.repo import Repo

    try:
        repo = Repo.find(Path.cwd())
    except UsageError:
        repo = None
    if repo is None or not (repo.state / "ledger.db").exists():
        yield Stand(_task(name), repo, None, None)
        return
    with Ledger.open(repo.state, readonly=True) as ledger:
        yield _stand(name, repo, ledger)


def _stand(name: Path, repo: Repo, ledger: Ledger) -> Stand:
    from keepfast.cli.place import Place, task_of

    latest = ledger.latest()
    here = name != Path() or (name / "task.toml").is_file() or latest is None
    task = _task(name if here or latest is None else repo.root / latest.task_folder)
    run = next((r for r in reversed(ledger.runs()) if r.task == task.name and r.task_hash == task.hash), None)
    as_run = task_of(Place(repo, ledger, run, None)) if run else None
    return Stand(as_run or task, repo, ledger, run)


def _task(name: Path) -> Task:
    from keepfast.shop import load_task

    return load_task(name)
