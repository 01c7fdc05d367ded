"""Named points at which a test kills this process with SIGKILL, to show that a run heals from there.

Owns the closed list; docs/crash-points.md says what is on disk at each and how it heals. Outside tests a point does nothing.
"""

from __future__ import annotations

import os
import signal

from keepfast import settings

POINTS = (
    "begun",
    "run-started",
    "baseline-stored",
    "start-marked",
    "start-appended",
    "inbox-taken",
    "proposed",
    "artifact-written",
    "committed",
    "judged",
    "append-open",
    "appended",
    "settled",
    "direct-measured",
    "direct-stored",
    "ending",
    "ended",
)


def point(name: str, n: int = 0) -> None:
    """Die here when KEEPFAST_CRASH is `name`, or `name@n` for experiment `n` alone. ValueError for a name that is not in POINTS."""
    if name not in POINTS:
        raise ValueError(f"{name} is not a crash point")
    wanted = settings.crash_point()
    if wanted and wanted in (name, f"{name}@{n}"):
        os.kill(os.getpid(), signal.SIGKILL)
