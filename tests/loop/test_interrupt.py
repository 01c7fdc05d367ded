"""Signals: the first one asks, the second insists, and the old handlers come back."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from keepfast.interrupt import Interrupt


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_once_asks_twice_insists(number: signal.Signals) -> None:
    told: list[bool] = []
    before = signal.getsignal(number)
    with Interrupt(lambda: told.append(True)) as interrupt:
        assert not interrupt.asked
        os.kill(os.getpid(), number)
        assert interrupt.asked
        assert told == [True]
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


def test_outside_the_main_thread_nothing_is_caught() -> None:
    before, found = signal.getsignal(signal.SIGINT), list[object]()

    def enter() -> None:
        with Interrupt(lambda: None):
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert found == [before]
