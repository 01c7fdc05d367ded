"""Streams for `git fast-import`: how a candidate, a chain of keeps or a finished branch is told to git in one process.

Pure: records to bytes. No filters, hooks, checkout or index are involved in what these streams store.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable

from msgspec import Struct

from keepfast.model import File

MAIL = "keepfast@localhost"
OURS = f"keepfast <{MAIL}>"
SIGNATURE = {"GIT_AUTHOR_NAME": "keepfast", "GIT_AUTHOR_EMAIL": MAIL, "GIT_COMMITTER_NAME": "keepfast", "GIT_COMMITTER_EMAIL": MAIL}
IGNORED_BY_HFS = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")


class Change(Struct, frozen=True):
    """Files of a champion and of a candidate made from it; paths relative to `root`, itself relative to the repository."""

    root: str
    before: tuple[File, ...]
    after: tuple[File, ...]


class Keep(Struct, frozen=True):
    """A kept experiment as a commit on the branch of keeps. `when` is its unix time, so that the same keep is the same commit."""

    commit: str  # the candidate's own commit, whose tree it has
    message: str
    when: float


def storable(path: str) -> bool:
    """Whether git takes this path: clean, inside the repository, and nothing that could be read as `.git`."""
    parts = IGNORED_BY_HFS.sub("", unicodedata.normalize("NFC", path)).casefold().replace("\\", "/").split("/")
    odd = any(part in ("", ".", "..") or part.startswith((".git", "git~")) for part in parts)
    return not odd and "\0" not in path


def changes(change: Change, prefix: str) -> tuple[bytes, ...]:
    """Lines that turn `before` into `after`, deletions first; paths that git would refuse are left out. `prefix` as `root/` or empty."""
    before = {f.path: f for f in change.before}
    after = {f.path: f for f in change.after}
    gone = [f"{prefix}{path}" for path in sorted(before.keys() - after.keys())]
    new = [(f"{prefix}{f.path}", f) for path, f in sorted(after.items()) if before.get(path) != f]
    deletions = tuple(b"D " + quoted(path) for path in gone if storable(path))
    return deletions + tuple(_modify(path, file) for path, file in new if storable(path))


def commit(ref: str, parent: str, message: str, lines: Iterable[bytes], stamp: str) -> bytes:
    """One commit on `ref`, marked :1. `stamp` is `NAME <MAIL> SECONDS ZONE` of author and committer. An empty parent: the one before."""
    text = message.encode("utf-8", "replace").replace(b"\0", b"")
    head = f"commit {ref}\nmark :1\nauthor {stamp}\ncommitter {stamp}\ndata {len(text)}\n".encode()
    start = f"\nfrom {parent}\n".encode() if parent else b"\n"
    return head + text + start + b"".join(line + b"\n" for line in lines)


def ended(*commits: bytes) -> bytes:
    """The whole stream; it answers with the hash of the last commit. Cut short by a kill, it stores nothing."""
    return b"feature done\n" + b"".join(commits) + b"get-mark :1\ndone\n"


def ours(when: float) -> str:
    return f"{OURS} {int(when)} +0000"


def tree(hash_: str) -> bytes:
    """The line that makes a commit's tree the tree `hash_`."""
    return f'M 040000 {hash_} ""'.encode()


def quoted(path: str) -> bytes:
    """A path as fast-import reads it, whatever characters it has."""
    escaped = os.fsencode(path).replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
    return b'"' + escaped + b'"'


def _modify(path: str, file: File) -> bytes:
    mode = b"120000" if file.link else b"100755" if file.executable else b"100644"
    return b"M " + mode + b" inline " + quoted(path) + b"\ndata " + str(len(file.data)).encode() + b"\n" + file.data
