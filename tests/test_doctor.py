"""What `keepfast doctor` says about GPUs: with none, with one, with one that lacks something. No card is needed here."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from keepfast import doctor
from keepfast.device import nvidia_health, nvidia_software, nvml
from keepfast.doctor import Doctor, Finding
from keepfast.errors import MachineError
from tests.device.fake_nvml import FakeNvml, process

INSTALLED = {"torch": "2.11.0+cu130", "triton": "3.6.0", "cuda-bindings": "13.3.0", "nvidia-ml-py": "13.580.0"}


class Machine:
    """A machine with these cards and this software."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.patch = patch
        self.packages = dict(INSTALLED)
        patch.setattr(nvml, "present", lambda: True)
        patch.setattr(nvidia_health, "_in_container", lambda: False)
        patch.setattr(nvidia_software, "version", lambda name: self.packages.get(name, ""))
        patch.setattr(nvidia_software, "triton_wanted", lambda: "3.6.0")
        patch.setattr(nvidia_software, "cupti", lambda: "/site-packages/nvidia/cu13/lib/libcupti.so.13")
        patch.setattr(nvidia_software, "nvcc", lambda: ("/usr/local/cuda/bin/nvcc", "13.0"))
        patch.setattr(doctor.os.path, "exists", lambda path: True)

    def findings(self, *cards: dict[str, Any], **system: Any) -> dict[str, Finding]:
        @contextmanager
        def opened(given: object = None) -> Iterator[object]:
            yield given or FakeNvml(*cards, system=system)

        self.patch.setattr(nvml, "opened", opened)
        return {finding.name.strip(): finding for finding in doctor._gpu()}


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_without_a_gpu_one_line_says_that_none_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "SIGNS", ("/nowhere",))
    assert doctor._gpu() == (Finding("gpu", "none", "CPU tasks need no GPU"),)


def test_all_is_well(machine: Machine) -> None:
    found = machine.findings({})
    assert {name: finding.state for name, finding in found.items()} == dict.fromkeys(
        ("gpu", "card 0", "packages", "torch", "cupti", "nvcc"), "ok"
    )
    assert found["gpu"].words == "1 card; driver 580.159.04 offers CUDA 13.0"
    assert found["card 0"].words.startswith("NVIDIA H200, sm_90, 140 GiB, GPU-000aaaa")
    assert "34 C, SM 345 MHz, 0 % used; ECC on" in found["card 0"].words
    assert found["packages"].words == "cuda-bindings 13.3.0, nvidia-ml-py 13.580.0"
    assert found["torch"].words == "torch 2.11.0+cu130, triton 3.6.0 (as torch asks)"
    assert found["nvcc"].words == "13.0, /usr/local/cuda/bin/nvcc"


def test_who_uses_a_card_and_what_holds_it(machine: Machine) -> None:
    machine.patch.setattr(nvidia_health, "_name", lambda pid: {1: "Xorg", 2: "python"}.get(pid, ""))
    card = {
        "DeviceGetGraphicsRunningProcesses": [process(1)],
        "DeviceGetComputeRunningProcesses": [process(2)],
        "DeviceGetCurrentClocksEventReasons": 0x20,
    }
    found = machine.findings(card, {})
    assert (found["card 0"].state, found["card 1"].state) == ("noisy", "ok")
    assert "also used by Xorg (pid 1), 1.0 GiB" in found["card 0"].words
    assert "slower than it could be: too hot (software slowdown)" in found["card 0"].words
    assert "other processes use it: python (pid 2), 1.0 GiB" in found["card 0"].words
    assert found["gpu"].words.startswith("2 cards;")


def test_a_lack_says_what_to_type(machine: Machine) -> None:
    machine.packages = {"nvidia-ml-py": "13"}
    machine.patch.setattr(nvidia_software, "cupti", lambda: "")
    machine.patch.setattr(nvidia_software, "nvcc", lambda: ("", ""))
    machine.patch.setattr(doctor.os.path, "exists", lambda path: "uvm" not in path)
    found = machine.findings({})
    assert found["packages"] == Finding("  packages", "lack", "not installed: cuda-bindings: pip install 'keepfast[gpu]'")
    assert found["torch"].state == found["cupti"].state == found["card 0"].state == "lack"
    assert "pip install 'keepfast[torch]'" in found["torch"].words
    assert "/dev/nvidia-uvm missing: sudo nvidia-modprobe -u -c=2" in found["card 0"].words
    assert found["nvcc"].state == "weak"


@pytest.mark.parametrize(
    ("packages", "state", "words"),
    [
        ({"triton": "3.5.1"}, "weak", "this torch asks for triton 3.6.0: pip install 'triton==3.6.0'"),
        ({"triton": ""}, "weak", "triton none: pip install 'triton==3.6.0'"),
        ({"torch": "2.11.0+cpu"}, "lack", "built without CUDA"),
        ({"triton": "3.6.0+git1"}, "ok", "as torch asks"),
    ],
)
def test_triton_matches_torch(machine: Machine, packages: dict[str, str], state: str, words: str) -> None:
    machine.packages |= packages
    found = machine.findings({})["torch"]
    assert found.state == state
    assert words in found.words


def test_what_stands_in_the_way_of_judging_is_said(machine: Machine) -> None:
    found = machine.findings({"DeviceGetComputeMode": 3})
    assert found["gpu"].state == "lack"
    assert "exclusive-process mode" in found["gpu"].words
    assert "nvidia-smi -i 0 -c DEFAULT" in found["gpu"].words
    found = machine.findings({}, SystemGetCudaDriverVersion_v2=12040)
    assert "cuda-bindings 13.3.0 needs CUDA 13" in found["gpu"].words
    assert machine.findings()["gpu"].state == "lack"


def test_a_driver_that_does_not_answer_is_a_line(machine: Machine) -> None:
    @contextmanager
    def opened(given: object = None) -> Iterator[object]:
        raise MachineError("the NVIDIA driver was updated while the old one is still loaded", next_step="restart this machine")
        yield

    machine.patch.setattr(nvml, "opened", opened)
    first, second = doctor._gpu()
    assert first == Finding("gpu", "lack", "the NVIDIA driver was updated while the old one is still loaded: restart this machine")
    assert second.name == "  packages"


def test_every_state_is_one_of_the_five_and_the_record_is_as_before(machine: Machine) -> None:
    found = tuple(machine.findings({"DeviceGetComputeMode": 3}, {}).values())
    assert {finding.state for finding in found} <= {"ok", "weak", "noisy", "lack", "none"}
    assert all("\n" not in finding.words for finding in found)
    said = msgspec.json.decode(msgspec.json.encode(Doctor("keepfast.doctor/1", found)))
    assert {tuple(finding) for finding in said["findings"]} == {("name", "state", "words")}


def test_it_is_quick_and_loads_no_torch() -> None:
    code = "import sys, keepfast.doctor as d; d._gpu(), d._torch(), d._cupti(), d._gpu_packages()\n"
    code += "import time; print([m for m in ('torch', 'triton', 'cuda', 'numpy') if m in sys.modules], time.process_time())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded, seconds = done.stdout.rsplit(maxsplit=1)
    assert loaded == "[]"
    assert float(seconds) < 2.0, "0.2 s on an idle machine"
