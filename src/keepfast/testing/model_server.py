"""A scripted model on loopback: it speaks four wire formats, answers from a list, and remembers what it was asked.

    with ModelServer((Edit("kernel.c", "a = 1;", "a = 2;"), Say("Done."))) as server:
        ...  # point an agent at server.url
        server.usage()  # what the agent's bill must say

Nothing is written outside memory, and nobody but this machine can reach it. Must not know which agent asks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import TracebackType

from msgspec.structs import replace

from keepfast.propose.agent import Usage
from keepfast.testing.model_http import Handler, Listener
from keepfast.testing.model_script import Exchange, Reply, Status

OVER = Status(400, text="the script is over: the agent asked more often than the test expects")


class ModelServer:
    """Answers the n-th request with the n-th of `replies`; the one after the last is a 400, or with `repeat` the last again. Instead of a
    list it may be a function of n, from 0, for a script without an end.

    aside     what a request without tools gets (an agent asks for titles and summaries); None: it takes its turn like any other
    """

    def __init__(self, replies: Sequence[Reply] | Callable[[int], Reply], *, aside: Reply | None = None, repeat: bool = False) -> None:
        self._written = replies if callable(replies) else None
        self._replies, self._aside, self._repeat = () if callable(replies) else tuple(replies), aside, repeat
        self._exchanges: list[Exchange] = []
        self._taken = 0
        self._lock = threading.Lock()
        self.closing = threading.Event()
        self._http = Listener(("127.0.0.1", 0), Handler, self)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), name="scripted model", daemon=True)

    def __enter__(self) -> ModelServer:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.closing.set()
        self._http.shutdown()
        self._http.hang_up()
        self._thread.join()
        self._http.server_close()

    @property
    def url(self) -> str:
        """`http://127.0.0.1:PORT`. OpenAI's formats lie under `/v1`, Anthropic's and Gemini's clients add their own path."""
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """Every request so far, in order of arrival, whether it asked a model or something else."""
        with self._lock:
            return tuple(self._exchanges)

    @property
    def asked(self) -> tuple[Exchange, ...]:
        """The requests that took a reply of the script."""
        return tuple(e for e in self.exchanges if e.reply is not None and not e.aside)

    @property
    def left(self) -> int:
        """How many replies nobody has asked for yet."""
        with self._lock:
            return len(self._replies) - min(self._taken, len(self._replies))

    @property
    def problems(self) -> tuple[str, ...]:
        """What the script says and the server could not do. A test wants it empty."""
        return tuple(e.problem for e in self.exchanges if e.problem)

    def usage(self, aside: bool = False) -> Usage:
        """The sum over the answers that were sent as a whole; with `aside` over those outside the script."""
        sent = [e.reply.usage for e in self.exchanges if e.reply is not None and e.delivered and e.aside == aside]
        tokens = (sum(u.input_tokens for u in sent), sum(u.output_tokens for u in sent), sum(u.cached_tokens for u in sent))
        return Usage(*tokens, requests=len(sent))

    def take(self, exchange: Exchange) -> tuple[int, Reply]:
        """For the handler: notes a request and says which number it has and what to answer."""
        with self._lock:
            aside = self._aside is not None and not exchange.tools
            reply = self._aside if self._aside is not None and aside else self._next()
            self._exchanges.append(replace(exchange, reply=reply, aside=aside, problem=OVER.text if reply is OVER else ""))
            return len(self._exchanges) - 1, reply

    def note(self, exchange: Exchange) -> None:
        """For the handler: a request that takes no reply."""
        with self._lock:
            self._exchanges.append(exchange)

    def settle(self, number: int, delivered: bool, problem: str = "") -> None:
        """For the handler: how request `number` went."""
        with self._lock:
            self._exchanges[number] = replace(
                self._exchanges[number], delivered=delivered, problem=problem or self._exchanges[number].problem
            )

    def _next(self) -> Reply:
        at = min(self._taken, len(self._replies) - 1) if self._repeat else self._taken
        self._taken += 1
        if self._written is not None:
            return self._written(at)
        return self._replies[at] if 0 <= at < len(self._replies) else OVER
