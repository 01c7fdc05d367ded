"""A model behind an API as an agent: one conversation a turn, until an answer's edits apply or a limit of the turn is met.

Owns the conversation and when to ask again. Must not know a protocol's words, or what the judge will say of the edits.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Protocol

import msgspec
from msgspec import Struct

from keepfast import settings
from keepfast.errors import UsageError
from keepfast.propose.agent import Changed, Job, Outcome, Turn, Usage
from keepfast.propose.chat import text
from keepfast.propose.chat.answer import Read, applied_to, read
from keepfast.propose.chat.edits import parse
from keepfast.propose.chat.money import Price, Tally
from keepfast.propose.chat.names import ChatOptions
from keepfast.propose.chat.post import Line, post
from keepfast.propose.chat.talk import TOOL, Call, Echo, Key, Malformed, Message, Question, Reply, Results, Told, Trouble, parsed, words

SAID = 4_000
SHORTEST_SECONDS = 1.0  # less is no time for a request
NAP_SECONDS = 1.0  # of a wait, between two looks at whether the run still goes on


class Clock(Protocol):
    def time(self) -> float: ...

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


def unknown(model: str, usage: Usage) -> float | None:
    """The price of a model that nobody knows."""
    return None


class ChatAgent(Struct, frozen=True):
    """`price`: dollars of a model's tokens. `key`: the key of a provider, "" for none."""

    options: ChatOptions
    price: Price = unknown
    key: Callable[[str], str] = settings.api_key
    clock: Clock = time
    chance: Callable[[], float] = random.random
    transport: object = None  # an httpx.AsyncBaseTransport, for tests

    @property
    def name(self) -> str:
        return self.options.name

    def turn(self, job: Job) -> Turn:
        """One conversation. What the model, the server and the network do is an Outcome, never an exception."""
        try:
            key = Key(self.key(self.options.provider))
        except UsageError as error:
            return Turn(Outcome.AUTHENTICATION, error.text())
        if not key and not self.options.keyless:
            names = settings.key_names(self.options.provider)
            return Turn(Outcome.AUTHENTICATION, f"there is no key for {self.options.provider}: set {names}")
        return _Talk(self, job, key).held()


class _End(Struct, frozen=True):
    """How a turn ends."""

    outcome: Outcome
    detail: str = ""
    changed: Changed = ()
    title: str = ""
    until: float | None = None


class _Talk:
    """One turn while it lasts."""

    def __init__(self, agent: ChatAgent, job: Job, key: Key) -> None:
        self._agent, self._options, self._job = agent, agent.options, job
        self._line = Line(
            self._options.url, self._options.dialect, key, self._options.idle_seconds, self._options.stream_bytes, agent.transport
        )
        self._tally = Tally(self._options.model, agent.price, self._options.surcharge)
        self._begun = agent.clock.monotonic()
        self._messages: list[Message] = [text.told(job)]
        self._tried: Changed | None = None
        self._tries = self._wrong = 0
        self._judged_s = 0.0  # spent on answers of the judge, which is not the model's time
        self._last: Read | None = None
        self._said = self._model = ""

    def held(self) -> Turn:
        end = self._step()
        while end is None:
            end = self._step()
        count = self._tally.uncounted
        note = f"without a count of tokens and priced by length: {count} of {self._tally.requests} answers" if count else ""
        detail = "; ".join(part for part in (end.detail, note) if part)
        return Turn(
            end.outcome, detail, end.changed, end.title, self._tally.usage,
            self._agent.clock.monotonic() - self._begun, self._model, until=end.until, said=self._said[:SAID],
        )  # fmt: skip

    def _step(self) -> _End | None:
        """One answer of the model and what follows from it."""
        got = self._answer()
        if isinstance(got, _End):
            return got
        self._said = got.text or self._said
        self._model = "".join(c for c in got.model if c.isprintable())[:200] or self._model
        if got.text.strip() or got.calls:
            self._messages.append(Echo(got.echo))
        return self._called(got) if got.calls else self._taken(read(got, self._job, self._tried))

    # ----------------------------------------------------------------------------------------- what an answer leads to

    def _taken(self, found: Read) -> _End | None:
        self._last = found
        if found.outcome in (Outcome.EDITED, Outcome.REFUSED):
            return _End(found.outcome, found.detail, found.changed, found.title)
        self._wrong += 1
        if self._wrong > self._options.corrections:
            return _End(found.outcome, found.detail, title=found.title)
        self._messages.append(Told(text.correction(found.errors)))
        return None

    def _called(self, got: Reply) -> _End | None:
        self._messages.append(Results(tuple((call.id, self._result(call)) for call in got.calls)))
        stubborn = self._wrong > self._options.corrections
        return _End(Outcome.MALFORMED, "it goes on to call tools that it does not have") if stubborn else None

    def _result(self, call: Call) -> str:
        """The judge's words about a try, or what was wrong with the call."""
        if call.name != TOOL or self._job.ask is None:
            self._wrong += 1
            return f"There is no tool `{call.name[:80]}`." + (f" The only one is `{TOOL}`." if self._job.ask else "")
        if self._tries >= self._job.limits.tries:
            self._wrong += 1
            return "No more tries are possible: answer now."
        self._tries += 1
        changed = self._edits(call)
        if isinstance(changed, str):
            return changed
        self._tried = changed
        began = self._agent.clock.monotonic()
        said = self._job.ask(changed)
        self._judged_s += self._agent.clock.monotonic() - began
        return text.judged(said, self._job.limits.tries - self._tries)

    def _edits(self, call: Call) -> Changed | str:
        try:
            blocks = parse(words(parsed(call.arguments).get("edits")))
        except Malformed as error:
            return f"The arguments are {error}; they must be an object with `edits`."
        applied = applied_to(self._job, blocks)
        return text.correction(applied.errors) if applied.errors else applied.changed or "These edits leave every file as it was."

    # ----------------------------------------------------------------------------------------- asking

    def _answer(self) -> Reply | _End:
        """The next whole answer, after as many requests as that takes, or how the turn ends without one."""
        attempt = 0
        while True:
            left = self._left()
            question = self._question()
            end, question = self._allowed(question, left)
            if end is not None:
                return end
            body = self._options.dialect.body(question)
            got = post(self._line, body, left, self._job.limits.ended)
            self._tally.add(got, len(body))
            if isinstance(got, Reply):
                return got
            wait = self._wait(attempt, got.wait_s)
            attempt += 1
            if not got.again or attempt > self._options.retries or wait + SHORTEST_SECONDS > self._left():
                return self._ended(got, wait)
            self._rest(wait)

    def _rest(self, seconds: float) -> None:
        until = self._agent.clock.monotonic() + seconds
        while (rest := until - self._agent.clock.monotonic()) > 0 and not self._job.limits.ended():
            self._agent.clock.sleep(min(rest, NAP_SECONDS))

    def _left(self) -> float:
        return self._begun + self._job.limits.seconds + self._judged_s - self._agent.clock.monotonic()

    def _question(self) -> Question:
        tool = text.tool() if self._job.ask is not None else None
        last = self._tally.requests + 1 >= self._job.limits.turns or self._tries >= self._job.limits.tries
        messages = (*self._messages, Told(text.LAST)) if last and tool else tuple(self._messages)
        return Question(self._options.model, text.system(tool is not None), messages, tool, not last, self._options.output_tokens)

    def _allowed(self, question: Question, left: float) -> tuple[_End | None, Question]:
        """Whether limits let this request go out, and the request with an answer no longer than the money left."""
        limits = self._job.limits
        if limits.ended():
            return _End(Outcome.STOPPED, "the run ended"), question
        if self._tally.requests >= limits.turns:
            return self._exhausted(), question
        if left < SHORTEST_SECONDS:
            return _End(Outcome.TIMED_OUT, f"the {limits.seconds:g} s of the turn are over{self._why()}"), question
        fits, most = self._tally.affordable(limits.dollars, len(self._options.dialect.body(question)), question.output_tokens)
        if not fits:
            return _End(
                Outcome.OVER_BUDGET, f"the next request would pass the {limits.dollars:g} dollars of the turn{self._why()}"
            ), question
        return None, msgspec.structs.replace(question, output_tokens=most)

    def _exhausted(self) -> _End:
        end = self._last or Read(Outcome.NOTHING, errors=("no answer held edits",))
        return _End(end.outcome, f"the {self._job.limits.turns} requests of the turn are used; {end.detail}", title=end.title)

    def _why(self) -> str:
        return f"; the answer before was not usable: {self._last.detail}" if self._last else ""

    def _wait(self, attempt: int, asked: float | None) -> float:
        """Seconds until the next try: twice as long each time, never all at the same moment, never less than the server asks."""
        own = min(self._options.first_wait_s * 2.0**attempt, self._options.longest_wait_s) * (0.5 + self._agent.chance())
        return max(own, asked or 0.0)

    def _ended(self, got: Trouble, wait: float) -> _End:
        until = self._agent.clock.time() + wait if got.outcome is Outcome.RATE_LIMITED else None
        return _End(got.outcome, got.detail, until=until)
