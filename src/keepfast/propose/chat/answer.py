"""What an answer amounts to: edits that apply, errors to tell the model, or a refusal. Must not know protocols, HTTP or money."""

from __future__ import annotations

import re

from msgspec import Struct

from keepfast.propose.agent import Changed, Job, Outcome
from keepfast.propose.chat import text
from keepfast.propose.chat.edits import Applied, Parsed, apply, parse
from keepfast.propose.chat.talk import Reply, Stop
from keepfast.task.paths import matches_any, unfit

_THOUGHT = re.compile(r"\A\s*<think>.*?(?:</think>|\Z)", re.DOTALL)
_REFUSALS = re.compile(
    r"\bI(?:'m| am) (?:unable|not able) to (?:help|assist|comply|do that)"
    r"|\bI (?:can(?:'|no)t|will not|won't|must decline to) (?:help|assist|comply|do that|provide|fulfil|continue)"
    r"|\bI must (?:decline|refuse)|(?:against|violates?) (?:my|our|the) (?:guidelines|polic)",
    re.IGNORECASE,
)
_WHERE_REFUSALS_STAND = 500  # characters from the beginning


class Read(Struct, frozen=True):
    """An answer as it was taken. `outcome` EDITED: `changed` is what it hands in; else what the turn would end with, and why."""

    outcome: Outcome
    title: str = ""
    changed: Changed = ()
    errors: tuple[str, ...] = ()

    @property
    def detail(self) -> str:
        return "; ".join(self.errors)[:1_000]


def read(reply: Reply, job: Job, tried: Changed | None) -> Read:
    """`tried`: what the last try was of, for an answer that hands it in."""
    found = parse(spoken(reply.text))
    head = text.title(found.prose)
    if reply.stop is Stop.REFUSED:
        return Read(Outcome.REFUSED, head, errors=(f"the model refused: {head}" if head else "the model or its provider refused",))
    if not found.blocks and not found.errors:
        return _without_blocks(found.prose, head, tried, reply.stop)
    applied = applied_to(job, found)
    cut = ("the answer was cut at the length that one may have: edit with SEARCH, not whole files",) if reply.stop is Stop.LENGTH else ()
    if applied.errors or cut:
        return Read(Outcome.MALFORMED, head, errors=(*applied.errors, *cut))
    if not applied.changed:
        return Read(Outcome.NOTHING, head, errors=("the edits leave every file as it was",))
    return Read(Outcome.EDITED, head, applied.changed)


def _without_blocks(prose: str, head: str, tried: Changed | None, stop: Stop) -> Read:
    if any(line.strip(" `*.") == text.SUBMIT for line in prose.split("\n")):
        if tried:
            return Read(Outcome.EDITED, head if head != text.SUBMIT else "", tried)
        return Read(Outcome.MALFORMED, head, errors=("nothing was tried that could be handed in",))
    if _REFUSALS.search(prose[:_WHERE_REFUSALS_STAND].replace("\u2019", "'")):
        return Read(Outcome.REFUSED, head, errors=(f"the model refused: {head}",))
    if stop is Stop.LENGTH:
        return Read(Outcome.MALFORMED, head, errors=("the answer was cut at the length that one may have, before any edit block",))
    if prose.rstrip().endswith("?"):
        return Read(
            Outcome.PERMISSION, head, errors=("the answer is a question; nobody is there to answer it: decide, and write edit blocks",)
        )
    return Read(Outcome.NOTHING, head, errors=("the answer holds no edit block",))


def spoken(answer: str) -> str:
    """An answer without the reasoning that some servers leave in front of it."""
    bare = _THOUGHT.sub("", answer, count=1)
    _, closed, after = bare.partition("\n</think>\n")  # a template that opened the reasoning itself
    return after if closed else bare


def applied_to(job: Job, found: Parsed) -> Applied:
    """The blocks on the job's files, with the errors of parsing among the errors."""
    applied = apply(found.blocks, {f.path: f.data for f in job.files if not f.link}, lambda path: _forbidden(job, path))
    return Applied(errors=(*found.errors, *applied.errors)) if found.errors else applied


def _forbidden(job: Job, path: str) -> str:
    given = [f.path for f in job.files]
    if (why := unfit(path)) is not None:
        return f"the path {why}"
    if any(f.link and f.path == path for f in job.files):
        return "it is a link, and links are not edited"
    if path in given or matches_any(job.editable, path):
        return ""
    return f"the file is not editable; these are: {', '.join(job.editable or tuple(given))[:300]}"
