"""Stand-ins that ship with keepfast: a judge that replays verdicts, a scripted proposer, a clock and a device that measure nothing."""

from __future__ import annotations

from keepfast.testing.agents import ScriptedAgent, edit, fault, proposer
from keepfast.testing.clock import FakeClock
from keepfast.testing.device import FakeDevice, FakeLibrary, machine
from keepfast.testing.recorded import RecordedJudge, calibration, direct, keep, reject, revert, started, void
from keepfast.testing.scripted import ScriptedProposer

__all__ = [
    "FakeClock",
    "FakeDevice",
    "FakeLibrary",
    "RecordedJudge",
    "ScriptedAgent",
    "ScriptedProposer",
    "calibration",
    "direct",
    "edit",
    "fault",
    "keep",
    "machine",
    "proposer",
    "reject",
    "revert",
    "started",
    "void",
]
