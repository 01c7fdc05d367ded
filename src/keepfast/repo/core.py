"""The repository that a task lives in: reads commits, stores candidates under refs/keepfast/<run>/<n>, moves keepfast/<run>.

Owns refs/keepfast/ and refs/heads/keepfast/ and nothing else of the user's: checkout, index and other branches are never touched.
Must not know the ledger or verdicts. Paths of `File`s are relative to a root below the repository, given as an absolute path.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import time
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Self

from keepfast.errors import LedgerError, UsageError
from keepfast.model import File
from keepfast.repo import stream
from keepfast.repo.git import ask, failure, tell
from keepfast.repo.stream import Change, Keep
from keepfast.task.paths import matches_any

STATE = ".keepfast"
FLUSHED = ("-c", "core.fsync=committed")
MODES = {"100644": False, "100755": True}  # regular files only: links and submodules are left alone
Entry = tuple[str, str, str]  # mode, hash, path in the repository


class Repo:
    """One work tree. `root` is its top, `state` the `.keepfast` folder at the main work tree's top."""

    def __init__(self, root: Path, common: Path, state: Path) -> None:
        self.root, self.common, self.state = root, common, state

    @classmethod
    def find(cls, path: Path) -> Self:
        """The repository around `path`; UsageError when there is none, it is bare, or it has no commit yet."""
        folder = next(p for p in (path.absolute(), *path.absolute().parents) if p.is_dir())
        said = ask(folder, ("rev-parse", "--path-format=absolute", "--is-bare-repository", "--git-dir", "--git-common-dir"))
        if said.code:
            raise _lost(folder, said.err)
        bare, git_dir, common = os.fsdecode(said.out).splitlines()
        top = ask(folder, ("rev-parse", "--path-format=absolute", "--show-toplevel"))
        if bare == "true" or top.code:
            step = "git clone it, or git worktree add, and run there"
            raise UsageError("a bare repository has no files to work on", where=git_dir, next_step=step)
        root = Path(os.fsdecode(top.out).rstrip("\n"))
        if ask(root, ("rev-parse", "--verify", "--quiet", "HEAD^{commit}")).code:
            raise UsageError("the repository has no commit yet", where=str(root), next_step='git add -A && git commit -m "start"')
        main = git_dir == common or Path(common).name != ".git"
        return cls(root, Path(common), (root if main else Path(common).parent) / STATE)

    def ensure_state(self) -> Path:
        """Make the `.keepfast` folder, ignored through .git/info/exclude; its path. LedgerError when that cannot be written."""
        line, exclude = f"/{STATE}/", self.common / "info" / "exclude"
        try:
            self.state.mkdir(exist_ok=True)
            text = exclude.read_text(errors="surrogateescape") if exclude.exists() else ""
            if line not in text.splitlines():
                exclude.parent.mkdir(exist_ok=True)
                with exclude.open("a") as file:
                    file.write(f"{'' if text.endswith(chr(10)) or not text else chr(10)}{line}\n")
        except OSError as error:
            step = "mend the rights of the folder, or free some space"
            raise LedgerError(f"cannot be written: {error.strerror}", where=str(error.filename), next_step=step) from error
        return self.state

    def head(self) -> str:
        """The commit that HEAD is at."""
        return self._commit("HEAD")

    def relative(self, path: str | Path) -> str:
        """`path` relative to the repository's top, with forward slashes, `.` for the top; UsageError when it is outside."""
        inside = os.path.relpath(os.path.realpath(path), os.path.realpath(self.root))
        if inside.split(os.sep)[0] == "..":
            raise UsageError(f"{path} is outside the repository", where=str(self.root), next_step="move the task into the repository")
        return inside.replace(os.sep, "/")

    # ---------------------------------------------------------------------------------- reading

    def files(self, commit: str, globs: Iterable[str], root: str | Path) -> tuple[File, ...]:
        """Regular files of `commit` that match `globs`, which are relative to `root`; sorted. Links and submodules are left out."""
        prefix, wanted = self._prefix(root), tuple(globs)
        below = tuple(sorted({prefix + _fixed(glob) for glob in wanted}))
        entries = [e for e in self._listed(commit, below) if e[2].startswith(prefix) and matches_any(wanted, e[2][len(prefix) :])]
        return tuple(File(path[len(prefix) :], data, MODES[mode]) for (mode, _, path), data in self._blobs(entries))

    def read(self, commit: str, paths: Collection[str]) -> tuple[File, ...]:
        """Those of `paths`, relative to the repository, that are regular files in `commit`; so are the paths of the result."""
        entries = [e for e in self._listed(commit, tuple(paths)) if e[2] in paths] if paths else []
        return tuple(File(path, data, MODES[mode]) for (mode, _, path), data in self._blobs(entries))

    def diff(self, a: str, b: str) -> str:
        """The unified diff from commit `a` to commit `b`. UsageError when one was dropped."""
        for commit in (a, b):
            self._commit(commit)
        out = tell(self.root, ("-c", "core.quotePath=false", "diff", "--no-color", "--no-ext-diff", "--no-textconv", a, b, "--"))
        return out.decode("utf-8", "replace")

    def _commit(self, name: str) -> str:
        said = ask(self.root, ("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")) if name else None
        if said is None or said.code:
            step = "it may have been dropped by `keepfast gc`"
            raise UsageError(f"no commit {name or '(none)'} here", where=str(self.root), next_step=step)
        return said.out.decode().strip()

    def _prefix(self, root: str | Path) -> str:
        inside = self.relative(root)
        return "" if inside == "." else f"{inside}/"

    def _listed(self, commit: str, below: tuple[str, ...]) -> list[Entry]:
        narrowed = () if "" in below else tuple(p.rstrip("/") for p in below)
        out = tell(self.root, ("ls-tree", "-r", "-z", "--full-tree", commit, "--", *narrowed))
        rows = (os.fsdecode(row).split("\t", 1) for row in out.split(b"\0") if row)
        return [(facts.split()[0], facts.split()[2], path) for facts, path in rows if facts.split()[0] in MODES]

    def _blobs(self, entries: list[Entry]) -> list[tuple[Entry, bytes]]:
        if not entries:
            return []
        out = tell(self.root, ("cat-file", "--batch"), "".join(f"{e[1]}\n" for e in entries).encode())
        found, at = [], 0
        for entry in entries:
            end = out.index(b"\n", at)
            size = int(out[at:end].split()[2])
            found.append((entry, out[end + 1 : end + 1 + size]))
            at = end + 2 + size
        return found

    # ---------------------------------------------------------------------------------- storing

    def snapshot(self, paths: Iterable[str | Path], run_id: str) -> tuple[str, tuple[str, ...]]:
        """HEAD plus the edits under `paths` (files or folders) that are not committed: a commit, and the paths edited.

        The commit is HEAD itself when there are none; no ref names it until `mark`. Ignored files, submodules and nested
        repositories stay as they are.
        """
        inside = tuple(self.relative(p) for p in paths)
        head, edited = self.head(), self._edited(inside)
        if not edited:
            return head, ()
        with tempfile.TemporaryDirectory(prefix="keepfast-index-") as folder:
            env = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
            tell(self.root, ("read-tree", head), env=env)
            listed = b"".join(os.fsencode(p) + b"\0" for p in edited)
            tell(self.root, ("update-index", "--add", "--remove", "--replace", "-z", "--stdin"), listed, env)
            tree = tell(self.root, ("write-tree",), env=env).decode().strip()
        message = f"The task as it was when run {run_id} began, with edits that were not committed\n"
        return tell(self.root, ("commit-tree", tree, "-p", head), message.encode(), stream.SIGNATURE).decode().strip(), edited

    def mark(self, run_id: str, n: int, commit: str) -> None:
        """Make refs/keepfast/<run>/<n> name a commit that exists."""
        tell(self.root, ("update-ref", self._ref(run_id, n), commit))

    def flush(self, commit: str, known: str) -> None:
        """Have on disk, against a power cut, what `commit` holds beyond `known`. Git leaves loose objects to the kernel's good time."""
        out = tell(self.root, ("rev-list", "--objects", "--no-object-names", commit, f"^{known}")).decode()
        paths = [self.common / "objects" / name[:2] / name[2:] for name in out.split()]
        for path in (*paths, *{p.parent for p in paths}):
            with contextlib.suppress(FileNotFoundError):  # packed by now
                descriptor = os.open(path, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)

    def commit(self, run_id: str, n: int, parent: str, change: Change, message: str) -> str:
        """Store a candidate as a commit on `parent` under refs/keepfast/<run>/<n>; its hash. A change of nothing is `parent` itself."""
        lines = stream.changes(change, self._prefix(change.root))
        if not lines:
            self.mark(run_id, n, parent)
            return parent
        return self._import(stream.commit(self._ref(run_id, n), parent, message, lines, stream.ours(time.time())))

    def settle(self, run_id: str, base: str, keeps: tuple[Keep, ...]) -> str:
        """Make branch keepfast/<run> what the ledger says: `base`, then one commit a keep. Idempotent; heals a branch left behind.

        Returns the branch's tip; empty when the branch is checked out somewhere and was therefore left alone.
        """
        branch = f"refs/heads/{self.branch(run_id)}"
        if tell(self.root, ("for-each-ref", "--format=%(worktreepath)", branch)).strip():
            return ""
        if not keeps:
            tell(self.root, ("update-ref", branch, base))
            return base
        self.flush(keeps[-1].commit, keeps[-2].commit if len(keeps) > 1 else base)
        trees = self._trees(k.commit for k in keeps)
        chain = [
            stream.commit(branch, "" if i else base, k.message, [stream.tree(tree)], stream.ours(k.when))
            for i, (k, tree) in enumerate(zip(keeps, trees, strict=True))
        ]
        return self._import(*chain, flush=FLUSHED)

    def finalize(self, branch: str, base: str, keeps: tuple[Keep, ...], start: str) -> str:
        """A new branch on `base` with the user's name: what `start` had uncommitted, if anything, then one commit a keep; its tip.

        Only paths that differ between `start`, its parent and the keeps are changed. UsageError when the branch exists, when git
        knows no name for the user, or when `base` has other contents at those paths than the run began with.
        """
        ref = f"refs/heads/{branch}"
        if not ask(self.root, ("rev-parse", "--verify", "--quiet", ref)).code:
            raise UsageError(f"branch {branch} exists", where=str(self.root), next_step=f"git branch -D {branch}   or give another name")
        stamp = self._user()
        steps = tuple(zip(self._origins(start, keeps), (start, *(k.commit for k in keeps)), strict=True))
        diffs = [self._changed(a, b) for a, b in steps]
        diffs[0] = self._lacking(base, steps[0], {path for lines in diffs for path in lines})
        messages = ["Files of the task that were not committed when the run began\n", *(k.message for k in keeps)]
        told = [(m, d) for m, d in zip(messages, diffs, strict=True) if d]
        commits = [stream.commit(ref, "" if i else base, m, d.values(), stamp) for i, (m, d) in enumerate(told)]
        if not commits:
            raise UsageError("nothing was kept, so there is nothing to finalize", next_step="keepfast report")
        return self._import(*commits, flush=FLUSHED)

    def drop(self, run_id: str, numbers: Iterable[int]) -> int:
        """Delete the refs of these candidates, whose commits git then collects in its own time; how many there were."""
        wanted = {self._ref(run_id, n) for n in numbers}
        found = tell(self.root, ("for-each-ref", "--format=%(refname)", f"refs/keepfast/{run_id}/")).decode().split()
        gone = [ref for ref in found if ref in wanted]
        tell(self.root, ("update-ref", "--stdin"), "".join(f"delete {ref}\n" for ref in gone).encode())
        return len(gone)

    def runs(self) -> tuple[str, ...]:
        """Names of runs that have refs or a branch here, whatever the ledger knows."""
        out = tell(self.root, ("for-each-ref", "--format=%(refname)", "refs/keepfast/", "refs/heads/keepfast")).decode()
        return tuple(sorted({ref.split("keepfast/", 1)[1].split("/")[0] for ref in out.split() if "keepfast/" in ref}))

    def heal(self, run_id: str) -> None:
        """Remove what a killed git left on refs of this run: lock files, and refs whose commit a power cut took away.

        Only the holder of the ledger may call this.
        """
        folder = self.common / "refs" / "keepfast" / run_id
        for path in (*folder.glob("*.lock"), self.common / f"refs/heads/{self.branch(run_id)}.lock"):
            path.unlink(missing_ok=True)
        refs = sorted(folder.glob("[0-9]*"))
        out = tell(self.root, ("cat-file", "--batch-check"), b"".join(p.read_bytes().strip() + b"\n" for p in refs)).decode()
        for path, said in zip(refs, out.splitlines(), strict=True):
            if said.split()[1:2] != ["commit"]:
                path.unlink()

    def branch(self, run_id: str) -> str:
        return f"keepfast/{run_id}"

    def _ref(self, run_id: str, n: int) -> str:
        return f"refs/keepfast/{run_id}/{n}"

    def _edited(self, inside: tuple[str, ...]) -> tuple[str, ...]:
        options = ("--porcelain=v1", "-z", "--untracked-files=all", "--ignore-submodules=all", "--no-renames")
        out = tell(self.root, ("status", *options, "--", *inside))
        paths = (os.fsdecode(row[3:]) for row in out.split(b"\0") if row)
        return tuple(sorted(p for p in paths if not p.endswith("/") and p.split("/")[0] != STATE))

    def _trees(self, commits: Iterable[str]) -> list[str]:
        return tell(self.root, ("rev-parse", *(f"{c}^{{tree}}" for c in commits))).decode().split()

    def _import(self, *commits: bytes, flush: tuple[str, ...] = ()) -> str:
        said = ask(self.root, (*flush, "fast-import", "--quiet", "--force", "--done"), stream.ended(*commits))
        if said.code:
            for report in (self.common, self.root / ".git"):
                with contextlib.suppress(OSError):  # there is none, or the disk is read-only: the error itself is what counts
                    (report / f"fast_import_crash_{said.pid}").unlink()
            raise failure(self.root, "fast-import", said.err)
        return said.out.decode().split()[-1]

    def who(self) -> str:
        """Name and mail of whom git takes for its user here, `NAME <MAIL>`; "" when it knows nobody."""
        said = [ask(self.root, ("config", "--get", f"user.{key}")) for key in ("name", "email")]
        name, mail = (one.out.decode("utf-8", "replace").strip() if not one.code else "" for one in said)
        return f"{name} <{mail}>" if name and mail else name or mail

    # ---------------------------------------------------------------------------------- parts of finalize

    def _user(self) -> str:
        said = ask(self.root, ("-c", "user.useConfigOnly=true", "var", "GIT_AUTHOR_IDENT"))
        if said.code:
            step = 'git config user.name "Your Name" && git config user.email you@example.org'
            what = "git does not know who you are, and the commits of a finished branch are yours"
            raise UsageError(what, where=str(self.root), next_step=step)
        return said.out.decode("utf-8", "replace").strip()

    def _origins(self, start: str, keeps: tuple[Keep, ...]) -> list[str]:
        """What each commit of the finished branch is the difference to; for `start` its parent, when it is a snapshot of ours."""
        facts = tell(self.root, ("show", "-s", "--format=%ce %P", start)).decode().split()
        snapshot = facts[0] == stream.MAIL and len(facts) == 2
        return [facts[1] if snapshot else start, start, *(k.commit for k in keeps[:-1])][: len(keeps) + 1]

    def _changed(self, a: str, b: str) -> dict[str, bytes]:
        out = tell(self.root, ("diff-tree", "-r", "-z", "--no-renames", a, b))
        cells = out.split(b"\0")
        found: dict[str, bytes] = {}
        for facts, raw in zip(cells[::2], cells[1::2], strict=False):
            path, (_, mode, _, hash_, kind) = os.fsdecode(raw), facts.decode().split()
            found[path] = b"D " + stream.quoted(path) if kind == "D" else f"M {mode} {hash_} ".encode() + stream.quoted(path)
        return found

    def _lacking(self, base: str, begun: tuple[str, str], touched: set[str]) -> dict[str, bytes]:
        """What `base` lacks of where the run began; UsageError when it has contents of its own where the run changed something."""
        origin, start = begun
        lacking = {path: line for path, line in self._changed(base, start).items() if path in touched}
        other = sorted(lacking.keys() & self._changed(origin, base).keys())
        if other:
            step = "leave --base out, then rebase or merge the finished branch"
            raise UsageError(f"{other[0]} was changed on {base[:12]} since the run began", where=str(self.root), next_step=step)
        return lacking


def _fixed(glob: str) -> str:
    """The part of a glob before its first wildcard component."""
    return re.split(r"[^/]*[*?\[]", glob, maxsplit=1)[0]


def _lost(folder: Path, words: str) -> LedgerError | UsageError:
    if "not a git repository" in words:
        return UsageError("not inside a git repository", where=str(folder), next_step='git init && git add -A && git commit -m "start"')
    return failure(folder, "rev-parse", words)
