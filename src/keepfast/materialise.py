"""From a proposal to a candidate: the champion's files with the change made, or why it cannot be made.

Owns how patches, whole files and tunables meet the champion's files. Must not know the judge: what the candidate may touch is
judged from the files handed on, offending ones included. Paths in a change are relative to the task folder, paths of files to its root.
"""

from __future__ import annotations

import hashlib
import os
import posixpath

from msgspec import Struct
from msgspec.structs import replace

from keepfast.errors import TaskError
from keepfast.model import SENTENCES, Candidate, File, Files, Patch, Proposal, Reason, Rung, Task, Tunables, Verdict
from keepfast.propose.base import structure_hash
from keepfast.repo import Repo, apply
from keepfast.repo.patch import merge, strip_of, touched
from keepfast.task import tunables
from keepfast.task.paths import matches_any

Pairs = tuple[tuple[str, int | float | str | bool], ...]


def tree_hash(files: tuple[File, ...]) -> str:
    """sha256 over the paths, kinds and contents of files, in any order."""
    total = hashlib.sha256()
    for file in sorted(files, key=lambda f: f.path):
        kind = b"l" if file.link else b"x" if file.executable else b"-"
        for part in (file.path.encode("utf-8", "surrogateescape"), kind, file.data):
            total.update(len(part).to_bytes(8, "little") + part)
    return total.hexdigest()


def refusal(reason: Reason, detail: str) -> Verdict:
    """A verdict that needs no judge."""
    return Verdict(SENTENCES[reason][0], reason, detail, (Rung("guard", False, 0.0),))


def tunables_of(task: Task, files: tuple[File, ...]) -> Pairs:
    """Values of the tunables in `files`; none when the task has none or the text is broken."""
    text = _tunables_text(task, files)
    try:
        return tunables.parse(text).values if text is not None else ()
    except TaskError:
        return ()


def structure_of(task: Task, files: tuple[File, ...]) -> str:
    return structure_hash(files, task.tunables)


class Workshop(Struct, frozen=True):
    """Makes candidates of one task."""

    task: Task
    repo: Repo

    def candidate(self, champion: Candidate, proposal: Proposal, n: int) -> Candidate | Verdict:
        """Experiment `n`'s candidate, not committed yet; or the verdict on a change that cannot be made."""
        change = proposal.change
        if isinstance(change, Patch):
            made = self._patched(champion, change)
        elif isinstance(change, Files):
            made = self._replaced(champion, change)
        else:
            made = self._tuned(champion, change)
        if isinstance(made, Verdict):
            return made
        link = next((f.path for f in made if f.link), None)
        if link is not None:
            return refusal(Reason.GUARD, f"{link} is a symbolic link")
        return Candidate(made, tree_hash(made), "", n)

    def rebased(self, change: Files, parent: Candidate, champion: Candidate) -> Files | str:
        """A change of `parent` as one of `champion`; or the files and lines that both changed."""
        old, new = ({f.path: f.data for f in c.files} for c in (parent, champion))
        made, clashes = list[tuple[str, bytes | None]](), list[str]()
        for path, data in change.files:
            name = self._from_root(path)
            found = _merged(new.get(name), old.get(name), data)
            if isinstance(found, str):
                clashes.append(f"{name}{': ' if found else ''}{found}")
            elif found != new.get(name):
                made.append((path, found))
        return "; ".join(clashes) if clashes else Files(tuple(made))

    def at(self, commit: str, n: int) -> Candidate:
        """The candidate that a commit holds."""
        files = self.repo.files(commit, self.task.editable, self.task.root)
        return Candidate(files, tree_hash(files), commit, n)

    # ---------------------------------------------------------------------------------- a patch

    def _patched(self, champion: Candidate, patch: Patch) -> tuple[File, ...] | Verdict:
        """Applied relative to the task folder or, where `root` is elsewhere and that fails, relative to `root`."""
        folders = dict.fromkeys(self.repo.relative(p) for p in (self.task.folder, self.task.root))
        why = ""
        for folder in folders:
            made = self._applied(champion, patch.diff, "" if folder == "." else folder)
            if not isinstance(made, str):
                return made
            why = made
        return refusal(Reason.DOES_NOT_APPLY, why)

    def _applied(self, champion: Candidate, diff: str, folder: str) -> tuple[File, ...] | Verdict | str:
        root, strip = self.repo.relative(self.task.root), strip_of(diff)
        here = tuple(replace(f, path=posixpath.normpath(posixpath.join(root, f.path))) for f in champion.files)
        own = {f.path for f in here}
        # What the patch names outside `editable` takes part, so that the judge can say that it may not be touched.
        named = {posixpath.normpath(posixpath.join(folder, name)) for name in touched(diff, strip)}
        others = self.repo.read(champion.commit, {n for n in named - own if not n.startswith(("..", "/"))})
        made = apply(diff, (*here, *others), strip, folder)
        if isinstance(made, str):
            return made
        gone = sorted({f.path for f in others} - {f.path for f in made})
        if gone:
            return _not_editable(posixpath.relpath(gone[0], root))
        same = set(others)
        return tuple(replace(f, path=posixpath.relpath(f.path, root)) for f in made if f not in same)

    # ---------------------------------------------------------------------------------- whole files

    def _replaced(self, champion: Candidate, change: Files) -> tuple[File, ...] | Verdict:
        files = {f.path: f for f in champion.files}
        for path, data in change.files:
            name = self._from_root(path)
            if data is None and not matches_any(self.task.editable, name):
                return _not_editable(name)
            if data is None:
                files.pop(name, None)
            else:
                files[name] = File(name, data, name in files and files[name].executable)
        return tuple(sorted(files.values(), key=lambda f: f.path))

    def _from_root(self, path: str) -> str:
        folder = posixpath.relpath(self.repo.relative(self.task.folder), self.repo.relative(self.task.root))
        return posixpath.normpath(posixpath.join(folder, path))

    # ---------------------------------------------------------------------------------- tunables

    def _tuned(self, champion: Candidate, change: Tunables) -> tuple[File, ...] | Verdict:
        text = _tunables_text(self.task, champion.files)
        if text is None:
            return refusal(Reason.BAD_TUNABLES, "this task has no tunables.toml")
        try:
            why = tunables.parse(text).valid(change.values)
            new = tunables.with_values(text, change.values) if why is None else ""
        except TaskError as error:
            why = error.what
        if why is not None:
            return refusal(Reason.BAD_TUNABLES, why)
        return tuple(replace(f, data=os.fsencode(new)) if f.path == self.task.tunables else f for f in champion.files)


def _merged(ours: bytes | None, base: bytes | None, theirs: bytes | None) -> bytes | str | None:
    """One file, None where there is none; a str says where both changed it."""
    if ours in (base, theirs):
        return theirs
    if ours is None or base is None or theirs is None:
        return "one removed or added it, the other changed it"
    return merge(ours, base, theirs)


def _not_editable(path: str) -> Verdict:
    return refusal(Reason.GUARD, f"{path} would be removed, and is not editable")


def _tunables_text(task: Task, files: tuple[File, ...]) -> str | None:
    file = next((f for f in files if task.tunables and f.path == task.tunables), None)
    return file.data.decode("utf-8", "surrogateescape") if file else None
