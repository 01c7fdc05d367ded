"""Running git: one process, bytes in, bytes out, in an environment that no caller's GIT_ variable leaks into.

Knows processes. What a failure means is for the caller, who may ask for the words instead of an error.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from keepfast import settings
from keepfast.errors import LedgerError, MachineError, UsageError

CALM = ("core.hooksPath=/dev/null", "core.fsmonitor=false", "fastimport.unpackLimit=100000", "gc.auto=0")


class Said(Struct, frozen=True):
    """What came of a git process."""

    code: int
    out: bytes
    err: str
    pid: int


def ask(folder: Path, args: tuple[str, ...], stdin: bytes = b"", env: Mapping[str, str] | None = None) -> Said:
    """Run `git args` in `folder`. Its own process group: Ctrl-C in the terminal is ours to handle, not git's."""
    options = [part for setting in CALM for part in ("-c", setting)]
    try:
        process = subprocess.Popen(
            ["git", "--literal-pathspecs", *options, *args],
            cwd=folder,
            env=settings.git_environment() | dict(env or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,
        )
    except FileNotFoundError:
        raise MachineError("git is not installed", next_step="install the package `git`, then `keepfast doctor`") from None
    out, err = process.communicate(stdin)
    return Said(process.returncode, out, err.decode("utf-8", "replace").strip(), process.pid)


def tell(folder: Path, args: tuple[str, ...], stdin: bytes = b"", env: Mapping[str, str] | None = None) -> bytes:
    """As `ask`, where a failure is an error: the output."""
    said = ask(folder, args, stdin, env)
    if said.code:
        raise failure(folder, args[0], said.err)
    return said.out


def failure(folder: Path, command: str, words: str) -> LedgerError | UsageError:
    """The error for what git said on standard error."""
    if "dubious ownership" in words:
        step = f"git config --global --add safe.directory {folder}"
        return UsageError("git does not trust this repository: another user owns it", where=str(folder), next_step=step)
    lines = words.splitlines() or ["no reason given"]
    line = next((text for text in lines if text.startswith(("fatal:", "error:"))), lines[0])
    known = (cause[1:] for cause in CAUSES if any(mark in words for mark in cause[0]))
    what, step = next(known, ("git failed", "git fsck   |   keepfast doctor"))
    return LedgerError(f"{what} (git {command}: {line})", where=str(folder), next_step=step)


CAUSES: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (("No space left", "Disk quota"), "the disk is full", "free some space, then keepfast run --resume"),
    (
        ("Permission denied", "Read-only file system", "insufficient permission"),
        "the repository cannot be written",
        "mend the rights of .git, then keepfast run --resume",
    ),
    (("File exists",), "another git holds a lock", "wait for it; if none runs, remove the .lock file named"),
    (("a directory", "cannot lock ref"), "a branch or ref is in the way", "git branch -m keepfast NAME   if you have a branch `keepfast`"),
)
