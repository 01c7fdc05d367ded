"""Cards, the choice of one, its fingerprint and its nodes: against answers of NVML, no card needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from keepfast.device import nvidia, nvidia_health, nvidia_software, nvml
from keepfast.errors import MachineError, UsageError
from tests.device.fake_nvml import GIB, FakeNvml, process


@pytest.fixture(autouse=True)
def packages(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Installed packages, as packaging says."""
    found = {"torch": "2.11.0+cu130", "triton": "3.6.0", "cuda-bindings": "13.3.0", "nvidia-ml-py": "13.580.0"}
    monkeypatch.setattr(nvidia_software, "version", lambda name: found.get(name, ""))
    monkeypatch.setattr(nvidia_health, "_in_container", lambda: False)
    return found


def test_a_card_is_what_nvml_says() -> None:
    (card,) = nvidia.cards(FakeNvml({}))
    assert (card.index, card.name, card.capability, card.minor) == (0, "NVIDIA H200", (9, 0), 2)
    assert (card.memory_bytes, card.free_bytes) == (140 * GIB, 139 * GIB)
    assert (card.pci, card.ecc, card.persistence, card.mig) == ("00000000:01:00.0", True, True, False)
    assert card.visible == card.uuid


def test_what_a_card_does_not_say_is_left_open() -> None:
    silent = ("MigMode", "EccMode", "PersistenceMode", "MinorNumber", "MemoryInfo", "PciInfo", "ComputeMode")
    (card,) = nvidia.cards(FakeNvml({f"DeviceGet{name}": None for name in silent}))
    assert (card.ecc, card.persistence, card.mig, card.minor, card.memory_bytes, card.pci) == (None, None, False, 0, 0, "")
    assert nvidia.choose(None, FakeNvml({f"DeviceGet{name}": None for name in silent})) == card


def test_a_card_is_named_by_index_or_by_the_start_of_its_uuid() -> None:
    ask = FakeNvml({}, {})
    for wanted in (1, "1", "GPU-111", "gpu-111AAAA", nvidia.cards(ask)[1].uuid):
        assert nvidia.choose(wanted, ask).index == 1
    for wrong in (2, "7", "GPU-9", "GPU-", ""):
        with pytest.raises(UsageError, match=r"no GPU|several GPUs") as caught:
            nvidia.choose(wrong, ask)
        assert "GPU-000aaaa" in caught.value.text()
        assert "nvidia-smi -L" in caught.value.text()


def test_unnamed_it_is_one_that_nobody_computes_on() -> None:
    busy = {"DeviceGetComputeRunningProcesses": [process(1)]}
    assert nvidia.choose(None, FakeNvml(busy, {})).index == 1
    assert nvidia.choose(None, FakeNvml(busy, busy)).index == 0
    assert nvidia.choose(None, FakeNvml({"DeviceGetComputeMode": 3}, busy, {})).index == 2


@pytest.mark.parametrize("mode", [1, 3])
def test_exclusive_mode_is_refused_with_what_to_type(mode: int) -> None:
    with pytest.raises(MachineError, match="exclusive-process") as caught:
        nvidia.choose(None, FakeNvml({"DeviceGetComputeMode": mode}))
    assert "nvidia-smi -i 0 -c DEFAULT" in caught.value.text()


def test_a_closed_card_is_refused() -> None:
    with pytest.raises(MachineError, match="closed to computing"):
        nvidia.choose(0, FakeNvml({"DeviceGetComputeMode": 2}))


def test_mig_needs_an_instance() -> None:
    mig = {"DeviceGetMigMode": [1, 1], "DeviceGetMaxMigDeviceCount": 7}
    with pytest.raises(MachineError, match="MIG") as caught:
        nvidia.choose(None, FakeNvml(mig))
    assert "-mig 0" in caught.value.text()
    ask = FakeNvml(mig | {"slices": ["MIG-aaa", "MIG-bbb"]}, {})
    assert nvidia.choose(0, ask).visible == "MIG-aaa"
    chosen = nvidia.choose("mig-b", ask)
    assert (chosen.visible, chosen.index, chosen.slices) == ("MIG-bbb", 0, ("MIG-aaa", "MIG-bbb"))


def test_no_card_is_said() -> None:
    with pytest.raises(MachineError, match="no NVIDIA GPU: nvidia-smi sees none") as caught:
        nvidia.choose(None, FakeNvml())
    assert "--gpus all" in caught.value.text()


def test_a_driver_that_is_too_old_is_named_with_who_needs_more(packages: dict[str, str]) -> None:
    old = {"SystemGetCudaDriverVersion_v2": 12040, "SystemGetDriverVersion": "550.54"}
    with pytest.raises(MachineError, match=r"driver 550.54 offers CUDA 12.4, and cuda-bindings 13.3.0 needs CUDA 13"):
        nvidia.choose(None, FakeNvml({}, system=old))
    packages["cuda-bindings"] = "12.9.1"
    with pytest.raises(MachineError, match=r"torch 2.11.0\+cu130 needs CUDA 13"):
        nvidia.choose(None, FakeNvml({}, system=old))
    packages["torch"] = "2.11.0+cu126"
    assert nvidia.choose(None, FakeNvml({}, system=old)).index == 0


def test_nothing_installed_needs_no_driver(packages: dict[str, str]) -> None:
    packages.clear()
    assert nvidia_software.cuda_needed() == ()
    packages["torch"] = "2.11.0+cpu"
    assert nvidia_software.cuda_needed() == ()


UUID = "GPU-000aaaa-0000-0000-0000-000000000000"


def test_a_fingerprint_is_the_same_twice_and_does_not_depend_on_the_walls() -> None:
    one, other = nvidia.fingerprint("walls", UUID, FakeNvml({})), nvidia.fingerprint("partial", UUID, FakeNvml({}))
    assert one.gpu == "NVIDIA H200"
    assert one.hash == other.hash
    assert (one.walls, other.walls) == ("walls", "partial")
    assert one.cpu
    busy = {"DeviceGetComputeRunningProcesses": [process(1)], "DeviceGetTemperature": lambda sensor: 80}
    assert nvidia.fingerprint("walls", UUID, FakeNvml(busy)).hash == one.hash, "what passes is no part of it"


@pytest.mark.parametrize(
    "change",
    [
        {"DeviceGetPowerManagementLimit": 500000},
        {"DeviceGetApplicationsClock": lambda kind: (1500, 1500, 3201)[kind]},
        {"DeviceGetMaxClockInfo": lambda kind: (1500, 1980, 3201)[kind]},
        {"DeviceGetEccMode": [0, 0]},
        {"DeviceGetMigMode": [1, 1]},
        {"DeviceGetName": "NVIDIA H100"},
    ],
)
def test_another_setting_is_another_machine(change: dict[str, Any]) -> None:
    assert nvidia.fingerprint("walls", UUID, FakeNvml(change)).hash != nvidia.fingerprint("walls", UUID, FakeNvml({})).hash


def test_another_driver_card_or_package_is_another_machine(packages: dict[str, str]) -> None:
    here = nvidia.fingerprint("walls", UUID, FakeNvml({})).hash
    assert nvidia.fingerprint("walls", UUID, FakeNvml({}, system={"SystemGetDriverVersion": "581"})).hash != here
    assert nvidia.fingerprint("walls", UUID, FakeNvml({}, system={"SystemGetCudaDriverVersion_v2": 13010})).hash != here
    assert nvidia.fingerprint("walls", nvidia.cards(FakeNvml({}, {}))[1].uuid, FakeNvml({}, {})).hash != here
    packages["triton"] = "3.7.0"
    assert nvidia.fingerprint("walls", UUID, FakeNvml({})).hash != here


def test_a_card_that_is_gone_is_said() -> None:
    for look in (lambda ask: nvidia.fingerprint("walls", "GPU-gone", ask), lambda ask: nvidia.health("GPU-gone", ask)):
        with pytest.raises(MachineError, match="GPU-gone is not here"):
            look(FakeNvml({}))


def test_nodes_are_those_of_the_card_and_of_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    (card,) = nvidia.cards(FakeNvml({}))
    assert nvidia.nodes(card) == ("/dev/nvidia2", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
    monkeypatch.setattr(nvidia.glob, "glob", lambda pattern: ["/dev/nvidia-caps/nvidia-cap2", "/dev/nvidia-caps/nvidia-cap1"])
    (card,) = nvidia.cards(FakeNvml({"DeviceGetMigMode": [1, 1]}))
    assert nvidia.nodes(card)[-2:] == ("/dev/nvidia-caps/nvidia-cap1", "/dev/nvidia-caps/nvidia-cap2")


def test_nothing_that_changes_a_setting_is_called() -> None:
    ask = FakeNvml({}, {})
    nvidia.choose(None, ask)
    nvidia.fingerprint("walls", UUID, ask)
    nvidia.health(UUID, ask)
    with nvidia.Watcher(UUID, ask) as watcher:
        watcher.fit(0)
        watcher.before()
        watcher.after()
    allowed = ("DeviceGet", "SystemGet", "EventSet", "DeviceRegisterEvents")
    assert [call for call in ask.asked if not call.startswith(allowed)] == []


# --------------------------------------------------------------------------------------------- NVML itself


class Module:
    """nvidia-ml-py, with the errors that it is told to raise."""

    class NVMLError(Exception):
        def __init__(self, value: int) -> None:
            self.value = value
            super().__init__(f"error {value}")

    def __init__(self, begin: int = 0, answer: int = 0) -> None:
        self.begin, self.answer, self.ended = begin, answer, 0

    def nvmlInit(self) -> None:
        self._raise(self.begin)

    def nvmlShutdown(self) -> None:
        self.ended += 1

    def nvmlDeviceGetName(self, device: int) -> str:
        self._raise(self.answer)
        return f"card {device}"

    def _raise(self, value: int) -> None:
        if value:
            raise Module.NVMLError(value)


@pytest.mark.parametrize(
    ("code", "words"),
    [(12, "no NVIDIA GPU"), (9, "no NVIDIA GPU"), (18, "driver was updated"), (4, "closed to this user"), (999, "does not start")],
)
def test_why_nvml_does_not_begin(monkeypatch: pytest.MonkeyPatch, code: int, words: str) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Module(begin=code))
    with pytest.raises(MachineError, match=words) as caught, nvml.opened():
        pass
    assert caught.value.next_step


def test_no_answer_is_none_and_a_lost_card_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    module = Module()
    monkeypatch.setitem(sys.modules, "pynvml", module)
    with nvml.opened() as ask:
        assert ask("DeviceGetName", 3) == "card 3"
        assert ask("DeviceGetWhatIsNewerThanThisPackage", 3) is None
        module.answer = 3
        assert ask("DeviceGetName", 3) is None
        module.answer = 15
        with pytest.raises(MachineError, match="does not answer") as caught:
            ask("DeviceGetName", 3)
        assert "reset" in caught.value.text()
    assert module.ended == 1
    with nvml.opened(ask):
        pass
    assert module.ended == 1, "one that was given stays open"


def test_without_the_package_the_sentence_depends_on_the_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(nvml, "SIGNS", (str(tmp_path / "version"),))
    with pytest.raises(MachineError, match="no NVIDIA GPU"), nvml.opened():
        pass
    (tmp_path / "version").touch()
    with pytest.raises(MachineError, match="nvidia-ml-py is not installed") as caught, nvml.opened():
        pass
    assert "pip install 'keepfast[gpu]'" in caught.value.text()


def test_the_real_library_is_asked_by_names_that_it_has() -> None:
    """Every call that is made exists in nvidia-ml-py; the choice between an old and a new name is one of them."""
    pynvml = pytest.importorskip("pynvml")
    ask = FakeNvml(
        {"DeviceGetCurrentClocksEventReasons": None, "DeviceGetMigMode": [1, 1], "DeviceGetMaxMigDeviceCount": 1, "slices": ["MIG-a"]}
    )
    nvidia.choose(None, ask)
    nvidia.fingerprint("walls", UUID, ask)
    with nvidia.Watcher(UUID, ask) as watcher:
        watcher.fit(0)
        watcher.before()
        watcher.after()
    assert {call for call in ask.asked if not hasattr(pynvml, f"nvml{call}")} == set()


# --------------------------------------------------------------------------------------------- software


def test_what_torch_asks_of_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    for needs, wanted in (
        (["filelock", 'triton==3.6.0; platform_system == "Linux"'], "3.6.0"),
        (["pytorch-triton==3.2.0+git4b3bb1f8"], "3.2.0+git4b3bb1f8"),
        (["triton (==2.1.0) ; platform_system == 'Linux'"], "2.1.0"),
        (["triton>=3"], ""),
        (None, ""),
    ):
        monkeypatch.setattr(nvidia_software.metadata, "requires", lambda name, needs=needs: needs)
        assert nvidia_software.triton_wanted() == wanted


def test_cupti_is_found_in_the_packages_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site, toolkit = tmp_path / "site-packages", tmp_path / "cuda"
    monkeypatch.setattr(sys, "path", [str(site)])
    monkeypatch.setattr(nvidia_software, "TOOLKITS", (str(toolkit),))
    assert nvidia_software.cupti() == ""
    for folder in (toolkit / "extras" / "CUPTI" / "lib64", site / "nvidia" / "cu13" / "lib"):
        folder.mkdir(parents=True)
        (folder / "libcupti.so.13").touch()
        assert nvidia_software.cupti() == str(folder / "libcupti.so.13")


def test_nvcc_and_its_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvidia_software, "TOOLKITS", (str(tmp_path / "cuda"),))
    monkeypatch.setattr(nvidia_software.shutil, "which", lambda name: None)
    assert nvidia_software.nvcc() == ("", "")
    nvcc = tmp_path / "cuda" / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 13.0, V13.0.88'\n")
    nvcc.chmod(0o755)
    assert nvidia_software.nvcc() == (str(nvcc), "13.0")
    nvcc.write_text("#!/bin/sh\nexit 1\n")
    assert nvidia_software.nvcc()[1] == "of an unknown release"


def test_importing_it_loads_neither_nvml_nor_cuda() -> None:
    code = "import sys, keepfast.device.nvidia; print([m for m in ('pynvml', 'cuda', 'torch', 'triton', 'numpy') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
