"""The fake device stands in for the compiled helper."""

from __future__ import annotations

from keepfast.device import cpu
from keepfast.testing import FakeDevice, FakeLibrary, machine


def test_ceilings_of_a_fake_device_are_what_its_clock_says() -> None:
    found = dict(cpu.ceilings(FakeDevice(), 2))
    assert {name.split("_")[0] for name in found} == {"copy", "read", "write", "float32"}
    assert all(abs(value - 200.0) < 1.0 for value in found.values())
    slow = FakeDevice(FakeLibrary(bandwidth_ns=lambda size: size / 10.0), sentinel=5.0)
    assert abs(dict(cpu.ceilings(slow, 1))["copy_4MB_GBps"] - 10.0) < 0.1
    assert slow.sentinel_ns() == 5.0


def test_machines_of_different_names_do_not_compare() -> None:
    assert machine().hash != machine(name="other").hash
    assert machine(()).ceilings == ()
