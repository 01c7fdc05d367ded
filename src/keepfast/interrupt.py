"""Ctrl-C: once asks, twice insists. SIGTERM counts as one.

Owns the signal handlers while a run is going on and puts the old ones back. Must not know what is being interrupted.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupt:
    """`with Interrupt(notice) as interrupt:`; `interrupt.asked` after the first signal, KeyboardInterrupt at the second.

    `notice` is called at the first one, from the signal handler. Outside the main thread, where Python has no handlers, nothing
    is caught.
    """

    def __init__(self, notice: Callable[[], None]) -> None:
        self.asked = False
        self._notice = notice
        self._before: list[tuple[signal.Signals, Any]] = []

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = [(number, signal.signal(number, self._caught)) for number in SIGNALS]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before:
            signal.signal(number, handler)

    def _caught(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        self._notice()
