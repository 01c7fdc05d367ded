"""What a turn has cost so far, and what its next request may cost. Owns the sums; must not know protocols, edits or jobs.

Tokens are what servers reported, to the unit. Dollars are theirs where they say them, else `price` of the tokens. An answer that
broke off, or came without a count, is priced by its length, as it is billed all the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from keepfast.propose.agent import Usage
from keepfast.propose.chat.talk import Count, Reply, Trouble

Price = Callable[[str, Usage], float | None]
"""Dollars of these tokens of a model, or None: nobody knows."""

CHARACTERS_A_TOKEN = 3.0  # of code; fewer than there are, so that estimates are high
EXPECTED_OUTPUT = 2_000  # tokens of an answer, before the first
MARGIN = 1.05


class Tally:
    """`surcharge`: what input costs more when it is put into a cache, as a share of its price."""

    def __init__(self, model: str, price: Price, surcharge: float) -> None:
        self._model, self._price, self._surcharge = model, price, surcharge
        self._input = self._output = self._cached = 0
        self._dollars: float | None = 0.0
        self._known = 0.0
        self._rate = 1 / CHARACTERS_A_TOKEN  # tokens of input for each character of a request, as the last one had it
        self._dear = 0.0  # dollars for each token of the last request, where the server says dollars
        self._longest = 0
        self.requests = 0
        self.uncounted = 0

    @property
    def usage(self) -> Usage:
        return Usage(self._input, self._output, self._cached, self._dollars if self.requests else 0.0, self.requests)

    def add(self, got: Reply | Trouble, body_characters: int) -> None:
        """Takes the end of one request. One that the server refused is no request that is billed."""
        if isinstance(got, Trouble) and not got.begun:
            return
        self.requests += 1
        count = got.count
        self._input += count.input_tokens
        self._output += count.output_tokens
        self._cached += count.cached_tokens
        self.uncounted += not count.reported
        billed = count if count.reported else self._assumed(count, body_characters, got.characters)
        self._longest = max(self._longest, billed.output_tokens)
        self._rate = billed.input_tokens / max(body_characters, 1) or self._rate
        self._pay(billed)

    def _pay(self, billed: Count) -> None:
        dollars = billed.dollars if billed.dollars is not None else self._cost(billed)
        self._known += dollars or 0.0
        self._dollars = None if dollars is None or self._dollars is None else self._dollars + dollars
        if billed.dollars is not None:
            self._dear = billed.dollars / max(billed.input_tokens + billed.output_tokens, 1)

    def _assumed(self, count: Count, body_characters: int, characters: int) -> Count:
        given = max(count.input_tokens, math.ceil(body_characters * self._rate))
        return Count(given, max(count.output_tokens, math.ceil(characters / CHARACTERS_A_TOKEN)), count.cached_tokens, count.written_tokens)

    def _cost(self, count: Count) -> float | None:
        usage = Usage(count.input_tokens, count.output_tokens, count.cached_tokens, requests=1)
        dollars = self._price(self._model, usage)
        if dollars is None:
            return self._dear * usage.tokens if self._dear else None
        if not (count.written_tokens and self._surcharge):
            return dollars
        written = self._price(self._model, Usage(count.written_tokens, requests=1))
        return dollars + self._surcharge * (written or 0.0)

    def affordable(self, limit: float | None, body_characters: int, most: int | None) -> tuple[bool, int | None]:
        """Whether the next request fits what is left of `limit`, and how many tokens its answer may have so that it surely does.

        Expected is an answer as long as the longest so far. With a price that nobody knows everything fits.
        """
        given = math.ceil(body_characters * self._rate * MARGIN)
        expected = min(self._longest or EXPECTED_OUTPUT, most or MOST_OUTPUT)
        enough, floor = self._cost(self._next(given, expected)), self._cost(self._next(given, 0))
        if limit is None or enough is None or floor is None:
            return True, most
        left = limit - self._known
        if enough > left:
            return False, most
        each = (enough - floor) / expected
        fits = math.floor((left - floor) / each) if each > 0 else MOST_OUTPUT
        return True, min(most or MOST_OUTPUT, max(fits, expected)) if fits < (most or MOST_OUTPUT) else most

    def _next(self, given: int, output: int) -> Count:
        return Count(given, output, written_tokens=given)


MOST_OUTPUT = 1_000_000
