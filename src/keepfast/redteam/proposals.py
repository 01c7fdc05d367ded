"""Proposals that reach for what is not theirs: a patch, whole files or tunables, made into a candidate and shown to the guard.

Owns a throw-away repository with the task. Must not know the corpus.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from keepfast import settings
from keepfast.judge import guard
from keepfast.materialise import Workshop
from keepfast.model import Candidate, Files, Patch, Proposal, Tunables, Verdict
from keepfast.redteam.entries import Entry, Folders
from keepfast.redteam.outcome import Found
from keepfast.repo import Repo
from keepfast.task.load import load

WHO = ("-c", "user.name=redteam", "-c", "user.email=redteam@keepfast.invalid", "-c", "commit.gpgsign=false")


class Proposals:
    """One repository for all. Close it, and it is gone."""

    def __init__(self, at: Folders) -> None:
        self.place = Path(tempfile.mkdtemp(prefix="keepfast-redteam-")).resolve()
        for task in ("softmax", "tuned"):
            shutil.copytree(at.cpu / task, self.place / task, ignore=shutil.ignore_patterns("__pycache__"))
        for argv in (("init", "-q", "-b", "main"), ("add", "-A"), (*WHO, "commit", "-q", "-m", "start")):
            subprocess.run(["git", *argv], cwd=self.place, check=True, env=settings.git_environment(), stdin=subprocess.DEVNULL)

    def close(self) -> None:
        shutil.rmtree(self.place, ignore_errors=True)

    def verdict(self, entry: Entry) -> Found:
        repo, task = Repo.find(self.place / entry.task), load(self.place / entry.task)
        workshop = Workshop(task, repo)
        champion = workshop.at(repo.head(), 1)
        made = workshop.candidate(champion, Proposal(entry.name, "redteam", _change(tomllib.loads(entry.source))), 2)
        if isinstance(made, Verdict):
            return Found(True, made.reason.value, "proposal", made.detail)
        return _guarded(guard.check(task, made, champion), made, champion)


def _guarded(found: object, made: Candidate, champion: Candidate) -> Found:
    if isinstance(found, guard.Refused):
        return Found(True, found.reason.value, "guard", found.detail)
    if made.tree == champion.tree:
        return Found(True, "no-change", "proposal")
    return Found(False, "a candidate", detail=", ".join(f.path for f in made.files))


def _change(said: dict[str, Any]) -> Patch | Files | Tunables:
    """`patch`: its text; `tunables`: values; `file`: tables of path and text (`times` repeats it), or `gone = true`."""
    if "patch" in said:
        return Patch(said["patch"])
    if "tunables" in said:
        return Tunables(tuple(said["tunables"].items()))
    files = ((f["path"], None if f.get("gone") else (f["text"] * f.get("times", 1)).encode()) for f in said["file"])
    return Files(tuple(files))
