"""The exceptions of keepfast: what is *ours* or the *user's* to mend. What a candidate does wrong is a `Verdict`, never one of these.

KeepfastError           prints as one message, without a traceback
  UsageError            exit 2   the command, the task or the repository must be changed by the user
    TaskError           exit 2   something in the task folder: says file, line or key
  MachineError          exit 5   this machine cannot do it now (void): busy, no compiler, no walls
  LedgerError           exit 1   the ledger cannot be read or written
"""

from __future__ import annotations


class KeepfastError(Exception):
    """An error for people: what is wrong, where, and the next thing to type."""

    exit_code = 1

    def __init__(self, what: str, *, where: str = "", next_step: str = "") -> None:
        self.what, self.where, self.next_step = what, where, next_step
        super().__init__(self.text())

    def text(self) -> str:
        head = f"{self.where}: {self.what}" if self.where else self.what
        return f"{head}\n  {self.next_step}" if self.next_step else head


class UsageError(KeepfastError):
    exit_code = 2


class TaskError(UsageError):
    pass


class MachineError(KeepfastError):
    exit_code = 5


class LedgerError(KeepfastError):
    exit_code = 1


def nearest(name: str, known: list[str] | tuple[str, ...]) -> str:
    """` Did you mean `x`?` or an empty string; for the end of a message about an unknown name."""
    import difflib

    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" Did you mean `{close[0]}`?" if close else ""
