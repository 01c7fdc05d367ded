"""Walls for a process that uses a card: what it needs works there, and what it must not do is refused. No card is needed here."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import stat
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from msgspec.structs import replace

from keepfast.errors import MachineError
from keepfast.judge import toolchain
from keepfast.walls import paths
from keepfast.walls.base import MIB, Wall, Walls
from tests.walls.kit import Check, Room
from tests.walls.test_hostile import ABSENT, REFUSED, refused

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
Walled = Callable[[Check], None]
HERE = Path(__file__).parent
REPOSITORY = HERE.parent.parent
LONG_S = 300.0  # for torch to be imported on a busy machine
needs_torch = pytest.mark.skipif(find_spec("torch") is None or find_spec("triton") is None, reason="torch and triton are not installed")


def device(**changes: object) -> dict[str, object]:
    return {"profile": "device", "processes": 64} | changes


@pytest.fixture(params=["root", "user"])
def room(request: pytest.FixtureRequest, probe: bytes) -> Iterator[Room]:
    """Walls with namespaces, made by this user: the interpreter may lie in a home that is closed to others."""
    found = Walls.detect("auto")
    if found.mode == "plain" or (request.param == "root" and os.getuid() != 0):
        pytest.skip("no such namespaces here")
    made = Room(replace(found, mode=request.param), probe)
    yield made
    made.assert_nothing_left()
    made.close()


def inside(room: Room, *words: str, node: str = "/dev/random", **changes: object) -> dict[str, int]:
    """Runs torch_inside.py with this interpreter, in what the judge opens for such a worker; what it printed."""
    outside = room.folder / "outside" / "secret"
    outside.parent.mkdir(exist_ok=True)
    outside.write_text("answers")
    scripts = [room.folder / name for name in ("torch_inside.py", "kernel_inside.py")]
    for script in scripts:
        shutil.copy(HERE / script.name, script)
        script.chmod(0o644)
    read = (*toolchain.python_folders(), *map(str, scripts))
    path = dict(toolchain.python_environment())["PYTHONPATH"]
    env = (*toolchain.python_environment(), ("PYTHONPATH", f"{room.folder}:{path}"))
    wall = device(read=read, env=env, devices=(node,), scratch_bytes=512 * MIB, file_bytes=256 * MIB, cpu_seconds=60, processes=512)
    argv = (sys.executable, str(scripts[0]), str(REPOSITORY), str(outside), str(os.getpid()), node, *words, room.mark)
    found = room.run_program(argv, LONG_S, **(wall | changes))
    assert found.values.get("end") == 0, found.text
    return found.values


@needs_torch
def test_torch_and_triton_work_and_load_what_they_compiled(room: Room) -> None:
    found = inside(room, "torch")
    assert found["cubin"] > 1000
    assert found["stub"] == 42
    assert found["cached"] > 3
    assert found["loaded"] == 42
    assert found["threads"] == 40


def test_python_sees_its_packages_and_nothing_else(room: Room) -> None:
    found = inside(room)
    works = ("null", "node", "maps", "cpus", "nodes", "keepfast")
    assert {name: found[name] for name in works} == dict.fromkeys(works, 0)
    denied = [name for name in found if name.startswith(("read ", "write ", "list "))]
    assert len(denied) == 10
    refused(found, *denied, also=ABSENT | {errno.EROFS})
    refused(found, "inet", "netlink", "ptrace", "signal", "other_node", also=ABSENT)
    assert found["others"] == 0
    assert not Path("/tmp/keepfast-hostile").exists()


def test_a_fresh_node_opens_and_only_when_it_is_listed(room: Room) -> None:
    node = room.folder / "node"
    try:
        os.mknod(node, 0o666 | stat.S_IFCHR, os.stat("/dev/zero").st_rdev)
        node.chmod(0o666)
        os.close(os.open(node, os.O_RDWR))
    except PermissionError:
        pytest.skip("this user makes no device nodes here")
    assert inside(room, node=str(node))["node"] == 0
    assert inside(room, node=str(node), devices=())["node"] in ABSENT | REFUSED
    assert inside(room, node=str(node), devices=(str(node), str(room.folder / "absent"), "/etc/passwd"))["node"] == 0


def test_devices_are_opened_for_reading_writing_and_control(walled: Walled) -> None:
    def check(room: Room) -> None:
        for devices, allowed in ((("/dev/random",), True), ((), False)):
            found = room.run("control", "/dev/random", **device(devices=devices)).values
            if allowed:
                assert found == {"open": 0, "count": 0}
            else:
                assert found["open"] in ABSENT | REFUSED

    walled(check)


def test_limits_are_those_that_cuda_needs(walled: Walled) -> None:
    def check(room: Room) -> None:
        found = room.run("limits", **device(memory_bytes=64 * MIB)).values
        assert found["addresses"] == -1
        assert found["data"] == -1
        assert found["files"] == 4096
        assert found["pinned"] != 0
        assert found["reserve"] == 0, "a terabyte of addresses"

    walled(check)


def test_local_sockets_only(walled: Walled) -> None:
    def check(room: Room) -> None:
        name = f"keepfast-test-{os.getpid()}"
        plain = room.walls.mode == "plain"
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as judge, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as handed:
            judge.bind(f"\0{name}")
            judge.listen()
            found = room.run("sockets", name, **device(), keep_fds=(handed.fileno(),)).values
            assert found["unix"] == 0
            refused(found, "inet", "inet6", "netlink", "packet", "vsock")
            refused(found, "connect", also={errno.ECONNREFUSED})
            found = room.run("local", name, **device()).values
            assert found["stream"] == found["listen"] == 0
            refused(found, "outside", also={errno.ECONNREFUSED})
            if plain:
                refused(found, "datagram", "send")
            else:
                assert found["send"] != 0

    walled(check)


def test_a_worker_with_a_device_is_walled_as_a_builder_is(walled: Walled) -> None:
    def check(room: Room) -> None:
        wall = device()
        kernel = room.run("kernel", **wall).values
        assert kernel.pop("newest") == errno.ENOSYS
        refused(kernel, *kernel, also={errno.ENOSYS, errno.EINVAL if room.walls.mode == "user" else errno.ENOSYS})
        attack = room.run("attack", str(os.getpid()), **wall).values
        names = ("attach", "seize", "vm_readv", "signal", "terminate", "queue", "limit", "pin", "nice", "pidfd", "mem", "environ")
        refused(attack, *names, "setown", "setsig", also=ABSENT)
        places = ("/", "/tmp", "/dev", "/dev/shm", "/proc/sys/kernel", "/sys", "/etc", "/usr/lib", str(room.folder))
        written = room.run("write", *places, **wall).values
        assert len(written) == 4 * len(places)
        refused(written, *written, also={errno.EROFS, errno.ENOENT})
        processes = room.run("processes", **wall).values
        assert processes["clone3"] == errno.ENOSYS
        assert processes["thread"] == processes["memfd"] == processes["clone"] == 0
        refused(processes, "shm_open", "nice", also=ABSENT)
        if room.walls.mode == "plain":
            refused(processes, "shmget", "setsid")

    walled(check)


def test_nothing_of_it_survives(walled: Walled) -> None:
    walled(lambda room: room.assert_nothing_left() if room.run("daemonise", **device()).status == 0 else pytest.fail("it did not end"))


def test_an_unknown_profile_is_an_error_of_ours(probe: bytes) -> None:
    room = Room(Walls.detect(), probe)
    with pytest.raises(MachineError, match="cannot enter the walls"):
        room.walls.spawn(replace(room.wall(), profile="other"), room.argv("nothing"))
    with pytest.raises(ValueError, match="absolute"):
        room.walls.spawn(Wall("device", str(room.folder / "scratch"), devices=("nvidia0",)), room.argv("nothing"))
    room.close()


def test_of_the_machine_only_cards_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, vendor in (("0000:01:00.0", "0x10de"), ("0000:02:00.0", "0x8086"), ("0000:03:00.0", "")):
        (tmp_path / name).mkdir()
        if vendor:
            (tmp_path / name / "vendor").write_text(f"{vendor}\n")
    monkeypatch.setattr(paths, "PCI", str(tmp_path))
    assert [path for path in paths.of_cards() if path.startswith(str(tmp_path))] == [str(tmp_path / "0000:01:00.0")]
    assert "/sys/devices/system/node" in paths.of_cards()


def test_nodes_are_real_and_counted_once(tmp_path: Path) -> None:
    (tmp_path / "zero").symlink_to("/dev/zero")
    assert paths.nodes((str(tmp_path / "zero"), "/dev/zero", "/dev/nvidia-absent", "/etc/passwd")) == ("/dev/zero",)
