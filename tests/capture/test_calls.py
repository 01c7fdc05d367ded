"""The words of the C ABI, and calls of Python entries."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import pytest

from keepfast.capture.arena import Arena
from keepfast.capture.calls import CCalls, Work
from keepfast.capture.refusals import CALLING, CAPTURING, Refused
from keepfast.gpu.layout import Given
from tests.capture.kit import laid

LAYOUT = laid(
    (
        ("x", "float32", (4, 8), False),
        Given("bias", "tensor"),
        Given("eps", "float", value=1e-5),
        Given("steps", "int", value=-3),
        Given("fast", "bool", value=True),
        Given("mode", "str", value="sum"),
        Given("limit", "float", value=2.5, optional=True),
        Given("last", "int", value=None, optional=True),
        ("y", "float32", (8,), True),
    ),
    (("out", "float32", (4, 8)), ("none", "float32", (0,))),
)


class Called:
    """keepfast_call that remembers its words."""

    def __init__(self, count: int, code: int = 0) -> None:
        self.count, self.code, self.words = count, code, [0] * count

    def __call__(self, words: Any) -> int:
        self.words = list(words)
        assert len(self.words) == self.count
        return self.code


def test_words_are_as_the_shim_unpacks_them(arena: Arena) -> None:
    sets = arena.block(4 * LAYOUT.set_bytes)
    function = Called(9 + 2 + 2 + 1)
    calls = CCalls(function, Work(LAYOUT, 4, sets), arena, 0x5EED)
    value, ns = calls.launch(3)
    outputs = calls.settle(3, value, CALLING)
    at, words = sets + 3 * LAYOUT.set_bytes, function.words
    assert (words[0], words[8]) == (at, at + 512)
    assert words[1] == 0, "a tensor that is None"
    assert struct.unpack("<d", words[2].to_bytes(8, "little")) == (1e-5,)
    assert words[3:5] == [2**64 - 3, 1]
    assert ctypes.string_at(words[5]) == b"sum"
    assert ctypes.c_double.from_address(words[6]).value == 2.5, "optional: by pointer"
    assert words[7] == 0
    assert words[9:11] == [outputs[0].address, outputs[1].address]
    assert [o.size for o in outputs] == [128, 0]
    assert words[11:] == [8, 4, 0x5EED]
    assert ns > 0
    assert len(arena.live()) == 3
    calls.drop()
    arena.epoch()
    assert len(arena.live()) == 1


@pytest.mark.parametrize(
    ("code", "phase", "error", "words"),
    [
        (3, CALLING, "raised", "it returned 3 instead of 0"),
        (-1, CAPTURING, "raised", "-1"),
        (900, CAPTURING, "graph", "900"),
        (900, CALLING, "raised", "900"),
    ],
)
def test_a_code_that_is_not_0_is_refused(arena: Arena, code: int, phase: str, error: str, words: str) -> None:
    calls = CCalls(Called(14, code), Work(LAYOUT, 1, arena.block(LAYOUT.set_bytes)), arena, 0)
    value, _ = calls.launch(0)
    with pytest.raises(Refused, match=words) as caught:
        calls.settle(0, value, phase)
    assert caught.value.error == error
