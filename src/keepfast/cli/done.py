"""What commands that change something print: what was done, or left in the inbox of the run that is going on."""

from __future__ import annotations


def tell(did: str, next_step: str = "", *, json: bool, queued: bool = False, facts: tuple[tuple[str, str], ...] = ()) -> None:
    """Prints `did`, and what to type next; with `json` one object of schema keepfast.done/1."""
    from keepfast.cli.out import emit, say
    from keepfast.model import Fact
    from keepfast.report.escape import line
    from keepfast.report.facts import Done

    if json:
        emit(Done("keepfast.done/1", did, queued, tuple(Fact(name, value) for name, value in facts)))
        return
    say([line(did), *([f"  {line(next_step)}"] if next_step else [])])
