"""Stand-ins that ship with keepfast: a judge that replays verdicts, a proposer that reads a script, a clock that nobody waits for."""

from __future__ import annotations

from keepfast.testing.clock import FakeClock
from keepfast.testing.recorded import RecordedJudge, calibration, direct, keep, reject, revert, started, void
from keepfast.testing.scripted import ScriptedProposer

__all__ = ["FakeClock", "RecordedJudge", "ScriptedProposer", "calibration", "direct", "keep", "reject", "revert", "started", "void"]
