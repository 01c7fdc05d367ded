"""A repository with a task, a script of proposals and the verdicts on them. `python kit.py FOLDER` is a run that a test may kill."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from keepfast import lifecycle, loop, model
from keepfast.ledger import Ledger
from keepfast.repo import Repo
from keepfast.testing import FakeClock, RecordedJudge, ScriptedProposer, keep, reject, revert, void

MACHINE = model.Machine("a cpu", 2, "6.1", "gcc 12", "walls", hash="machine")
START = "int kernel(void)\n{\n    return 0;\n}\n"


def git(folder: Path, *args: str) -> str:
    done = subprocess.run(["git", *args], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout


def repository(folder: Path, task: str = "tasks/soft max é") -> Path:
    """A repository with one commit and a task in it; the task's folder."""
    where = folder / task
    (where / "kernel").mkdir(parents=True)
    (where / "kernel" / "kernel.c").write_text(START)
    (where / "task.toml").write_text("schema = 1\n")
    (folder / "README").write_text("mine\n")
    git(folder, "init", "-q", "-b", "main")
    git(folder, "config", "user.name", "A User")
    git(folder, "config", "user.email", "user@example.org")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "start")
    return where


def task(folder: Path, **more: object) -> model.Task:
    given: dict[str, object] = {
        "name": "soft max é", "title": "row softmax", "folder": str(folder), "root": str(folder), "languages": ("c",),
        "signature": model.Signature("f", (), (), "f() -> ()"), "entry_path": "kernel/kernel.c", "entry_symbol": "kernel",
        "editable": ("kernel/**",), "axes": (), "cases": (model.Case("all", ()),), "arguments": (), "goal": model.Goal(),
        "budget": model.Budget(), "rules": model.Rules(), "limit": model.Limit(), "build": model.Build(), "tolerance": model.Tolerance(),
        "baselines": (), "tunables": "", "threads": 1, "oracle": "reference", "hash": "task",
    }  # fmt: skip
    return model.Task(**(given | more))  # type: ignore[arg-type]


def kernel(value: int) -> model.Files:
    return model.Files((("kernel/kernel.c", START.replace("0", str(value)).encode()),))


def patch(old: int, new: int) -> model.Patch:
    head = "--- a/kernel/kernel.c\n+++ b/kernel/kernel.c\n@@ -1,4 +1,4 @@\n"
    return model.Patch(f"{head} int kernel(void)\n {{\n-    return {old};\n+    return {new};\n }}\n")


def proposals(*changes: model.Patch | model.Files | model.Tunables) -> tuple[model.Proposal, ...]:
    return tuple(model.Proposal(f"change {i}", "scripted", c) for i, c in enumerate(changes))


def session(
    where: Path,
    ledger: Ledger,
    script: tuple[model.Proposal, ...],
    judge: object,
    *,
    task_: model.Task | None = None,
    **more: object,
) -> loop.Session:
    """A session on the task's last run, or on a new one."""
    repo, this = Repo.find(where), task_ or task(where)
    new = lifecycle.Options(MACHINE, seed=7)
    run = lifecycle.resumable(this, ledger, MACHINE) if ledger.runs() else lifecycle.new_run(this, repo, ledger, new).run
    given = {"on_event": lambda event: None, "clock": FakeClock(tick=0.01)} | more
    return loop.Session(this, repo, ledger, judge, ScriptedProposer(script), run, **given)  # type: ignore[arg-type]


def eventful(where: Path, ledger: Ledger) -> loop.Session:
    """Keeps, a patch that does not apply, known files, no change, a cheat, a void, commands from outside, two baselines."""
    changes = (patch(0, 1), kernel(2), patch(7, 8), kernel(3), kernel(2), kernel(3), *(kernel(i) for i in range(4, 10)))
    verdicts = {
        2: keep(1.2), 3: revert(0.9), 5: keep(1.1), 8: reject(model.Reason.STATEFUL, cheat=True), 9: keep(1.05),
        10: keep(1.3), 11: void(), 12: keep(1.02), 13: keep(1.04), 14: keep(1.03),
    }  # fmt: skip
    totals = {2: -0.18, 5: -0.28, 9: -0.33, 10: -0.59, 12: -0.61, 13: -0.65, 14: -0.68}

    def verdict(candidate: model.Candidate, against: model.Candidate) -> model.Verdict:
        if candidate.n == 3:
            ledger.post("budget", "experiments=50")
            ledger.post("idea", "keep the row in registers")
        return verdicts[candidate.n]

    judge = RecordedJudge(verdict, logs=lambda c: totals[c.n], baselines={"numpy": -0.3, "slow": 0.4})
    budget = model.Budget(experiments=6)  # too few, unless the command posted at experiment 3 is obeyed
    return session(where, ledger, proposals(*changes), judge, task_=task(where, budget=budget))


def main() -> None:
    where = Path(sys.argv[1])
    with Ledger.open(Repo.find(where).ensure_state()) as ledger:
        loop.run(eventful(where, ledger))


if __name__ == "__main__":
    main()
