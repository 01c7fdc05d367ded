"""The few patterns by which words of a CLI or a model server are understood. Pure text in, meaning out."""

from __future__ import annotations

import re

from keepfast.propose.agent import Outcome

LONGEST_S = 8 * 86400.0  # a limit that says it ends later is not believed
UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

SPENT = re.compile(
    r"\b402\b|credit balance is too low|insufficient[_ ](quota|credit|funds|balance)|payment required|billing",
    re.IGNORECASE,
)
RATE = re.compile(
    r"\b(429|529)\b|rate.?limit|too many requests|(usage|session|weekly|request|token) limit|hit your limit|quota|resource.?exhausted"
    r"|overloaded",
    re.IGNORECASE,
)
KEY = re.compile(
    r"\b(401|403)\b|unauthori[sz]ed|unauthenticated|authentication[ _](error|failed|required)|(failed|unable) to authenticate"
    r"|(invalid|incorrect|missing|no|expired|provide an?|set an?) (x-)?api[ _-]?key"
    r"|api[ _-]?key (is )?(not|invalid|missing|expired|required)|(invalid|missing|no|expired) credentials"
    r"|token (has |is )?expired|not logged in|/login\b|log in again|auth method",
    re.IGNORECASE,
)
ASKED = re.compile(
    r"(requires?|needs?|waiting for|without) (your |user )?(approval|permission|confirmation)|permission requested|denied by policy",
    re.IGNORECASE,
)
REFUSED = re.compile(
    r"\bI(?:'m| am)? (?:sorry, but I )?(?:can(?:'|no)t|can not|won't|will not|am unable to|am not able to|must decline to|unable to)"
    r" (?:help|assist|comply|do that|do this|continue|fulfil|complete this|provide|write|support)|\bI (?:must|have to) (?:decline|refuse)"
    r"|against my (?:guidelines|policy)|unable to (?:respond to|assist with) (?:this|that|your) request|violates? (?:our|the) usage polic"
    r"|content[_ -]?filter",
    re.IGNORECASE,
)
AFTER = re.compile(r"(?:retry.?after|retrydelay)[\"':=\s]+(\d+(?:\.\d+)?)", re.IGNORECASE)
SPAN = r"\d+(?:\.\d+)?\s?(?:ms|milliseconds?|days?|hours?|hrs?|minutes?|mins?|seconds?|secs?|[dhms])"
WITHIN = re.compile(rf"\b(?:in|after)\s({SPAN}(?:(?:,? and |, ?| )?{SPAN}){{0,4}})\b", re.IGNORECASE)
STAMP = re.compile(r"\|(\d{10})\b")


def kind(status: int | None, said: str) -> Outcome | None:
    """What an error means that will not go away by itself: money, a limit, a key. None for any other."""
    if status == 402 or SPENT.search(said):
        return Outcome.OVER_BUDGET
    if status in (429, 529) or (status is None and RATE.search(said)):
        return Outcome.RATE_LIMITED
    return Outcome.AUTHENTICATION if status in (401, 403) or (status is None and KEY.search(said)) else None


def until(said: str, now: float, resets: float | None = None, retry_s: float | None = None) -> float | None:
    """The unix time at which a limit ends, as far as it was told."""
    when = resets if resets is not None or retry_s is None else now + retry_s
    if when is None and (stamp := STAMP.search(said)):
        when = float(stamp[1])
    if when is None and (after := AFTER.search(said)):
        when = now + float(after[1])
    if when is None and (within := WITHIN.search(said)):
        when = now + duration_s(within[1])
    return when if when is not None and now <= when <= now + LONGEST_S else None


def duration_s(words: str) -> float:
    """Seconds in words such as `1h 3m` or `2 days, 5 minutes`."""
    total = 0.0
    for number, unit in re.findall(r"(\d+(?:\.\d+)?)\s*([a-z]+)", words.lower()):
        name = "ms" if unit in ("ms", "millisecond", "milliseconds") else unit[0]
        total += float(number) * UNIT_S.get(name, 0.0)
    return total
