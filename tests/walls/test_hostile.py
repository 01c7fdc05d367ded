"""What a hostile program tries from inside the walls. Each probe also proves that nothing of it is left afterwards."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from keepfast.walls.base import MIB, SPARE_TASKS
from tests.walls.kit import Check, Room

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
Walled = Callable[[Check], None]
REFUSED = {errno.EPERM, errno.EACCES}
ABSENT = {errno.ENOENT, errno.ESRCH}


def refused(values: dict[str, int], *names: str, also: set[int] = REFUSED) -> None:
    """Every named attempt was made and failed for a reason of the walls."""
    assert {name: values.get(name) for name in names if values.get(name) not in REFUSED | also} == {}


def test_a_fork_bomb_is_bounded_and_ends(walled: Walled) -> None:
    def check(room: Room) -> None:
        found = room.run("bomb", until="failed=", profile="builder", processes=8)
        assert found.status is None
        shared = room.walls.mode == "plain" and os.getuid() != 0  # the limit counts all processes of this user
        assert found.values["made"] <= (8 + SPARE_TASKS if shared else 8)
        assert found.values["made"] + found.values["failed"] == 200

    walled(check)


def test_a_runner_cannot_bomb_at_all(walled: Walled) -> None:
    walled(lambda room: refuted(room.run("bomb", until="failed=").values == {"made": 0, "failed": 200}))


def refuted(claim: bool) -> None:
    assert claim


def test_a_daemon_does_not_survive(walled: Walled) -> None:
    def check(room: Room) -> None:
        found = room.run("daemonise", profile="builder", processes=8)
        assert found.status == 0
        assert found.values["fork"] == 0
        if room.walls.mode == "plain":
            refused(found.values, "setsid", "setpgid")

    walled(check)


def test_other_processes_are_out_of_reach(walled: Walled) -> None:
    def check(room: Room) -> None:
        for profile in ("builder", "runner"):
            found = room.run("attack", str(os.getpid()), profile=profile)
            names = ("attach", "seize", "vm_readv", "signal", "terminate", "queue", "limit", "pin", "nice", "pidfd", "mem", "environ")
            refused(found.values, *names, "setown", "setsig", also=ABSENT)
            if room.walls.mode == "plain":
                refused(found.values, "everyone")
            assert found.status == 0

    walled(check)


def test_nothing_is_written_outside_the_scratch_folder(walled: Walled) -> None:
    def check(room: Room) -> None:
        task = room.folder / "task"
        task.mkdir(mode=0o777)
        task.chmod(0o777)
        (task / "reference.py").write_text("answers")
        (task / "reference.py").chmod(0o666)
        (task / "tool").write_bytes(room.probe.read_bytes())
        (task / "tool").chmod(0o777)
        places = (
            "/",
            "/tmp",
            "/var/tmp",
            "/dev",
            "/dev/shm",
            "/proc/sys/kernel",
            "/sys",
            "/etc",
            "/usr",
            "/usr/lib",
            str(task),
            str(room.folder),
            os.environ["HOME"],
        )
        for read in ((str(room.probe),), (str(room.probe), str(task), "/usr", "/etc")):
            written = room.run("write", *places, read=read).values
            assert len(written) == 4 * len(places)
            refused(written, *written, also={errno.EROFS, errno.ENOENT})
            changed = room.run("change", str(task / "reference.py"), str(task / "tool"), "/etc/passwd", read=read).values
            refused(changed, *changed, also={errno.EROFS, errno.ENOENT})
        assert (task / "reference.py").read_text() == "answers"
        assert [path for place in places for path in Path(place).glob("keepfast-hostile*")] == []

    walled(check)


def test_only_listed_files_are_read(walled: Walled) -> None:
    def check(room: Room) -> None:
        secret = room.folder / "secret"
        secret.write_text("answers")
        secret.chmod(0o666)
        paths = (
            str(secret),
            "/etc/passwd",
            "/etc/hostname",
            f"/proc/{os.getpid()}/environ",
            "/proc/1/root/etc/passwd",
            "/dev/mem",
            "/dev/kmsg",
            "/tmp",
        )
        found = room.run("read", *paths).values
        assert len(found) == len(paths)
        refused(found, *found, also=ABSENT)
        assert set(room.run("read", str(room.probe), "/dev/null", "/dev/zero", "/dev/urandom").values.values()) == {0}

    walled(check)


def test_a_flood_of_output_is_the_readers_to_bound(walled: Walled) -> None:
    def check(room: Room) -> None:
        assert room.run("flood").size > MIB

    walled(check)


def test_memory_has_a_limit(walled: Walled) -> None:
    def check(room: Room) -> None:
        found = room.run("memory", memory_bytes=128 * MIB).values
        assert 32 < found["mib"] < 128
        assert found["lock"] != 0

    walled(check)


def test_scratch_has_a_quota_in_bytes_and_files(walled: Walled) -> None:
    def check(room: Room) -> None:
        if room.walls.mode == "plain":
            assert any(fact.name == "scratch quota" and fact.value.startswith("no") for fact in room.walls.facts)
            return
        assert 4096 < room.run("disk", scratch_bytes=8 * MIB).values["kib"] <= 8192
        assert room.run("files").values["files"] < 8192

    walled(check)


def test_one_file_has_a_limit(walled: Walled) -> None:
    walled(lambda room: refuted(room.run("file", file_bytes=MIB, scratch_bytes=64 * MIB).values == {"kib": 1024}))


def test_there_is_no_network_and_no_other_socket(walled: Walled) -> None:
    def check(room: Room) -> None:
        name = f"keepfast-test-{os.getpid()}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as judge, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as handed:
            judge.bind(f"\0{name}")
            for profile in ("builder", "runner"):
                found = room.run("sockets", name, profile=profile, keep_fds=(handed.fileno(),)).values
                refused(found, "inet", "inet6", "unix", "netlink", "packet", "vsock", "pair", "connect", "bind")

    walled(check)


def test_kernel_calls_that_no_kernel_needs_are_refused(walled: Walled) -> None:
    def check(room: Room) -> None:
        for profile in ("builder", "runner"):
            found = room.run("kernel", profile=profile)
            assert found.status == 0
            assert found.values.pop("newest") == errno.ENOSYS
            refused(found.values, *found.values, also={errno.ENOSYS, errno.EINVAL if room.walls.mode == "user" else errno.ENOSYS})
            assert len(found.values) >= 23

    walled(check)


def test_a_runner_starts_nothing(walled: Walled) -> None:
    def check(room: Room) -> None:
        found = room.run("processes").values
        refused(found, *(name for name in found if name != "clone3"), also={errno.ENOENT})
        assert found["clone3"] == errno.ENOSYS
        assert "execve" in found, "the probe ran to its end: no exec replaced it"

    walled(check)


def test_a_runner_with_threads_still_starts_no_process(walled: Walled) -> None:
    def check(room: Room) -> None:
        found = room.run("processes", processes=2).values
        assert found.pop("thread") == 0
        refused(found, *found, also={errno.ENOENT, errno.ENOSYS})

    walled(check)


def test_it_stays_on_its_cores(walled: Walled) -> None:
    def check(room: Room) -> None:
        first = min(os.sched_getaffinity(0))
        for profile in ("builder", "runner"):
            found = room.run("pinning", profile=profile, cores=(first,)).values
            assert found["cores"] == 1
            refused(found, "repin")

    walled(check)


def test_buffers_keep_their_size_and_inputs_their_contents(walled: Walled) -> None:
    def check(room: Room) -> None:
        inputs, outputs = os.memfd_create("inputs", os.MFD_ALLOW_SEALING), os.memfd_create("outputs", os.MFD_ALLOW_SEALING)
        for fd in (inputs, outputs):
            os.ftruncate(fd, 8192)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        ours = mmap.mmap(inputs, 8192)
        ours[:8] = b"contents"
        fcntl.fcntl(inputs, fcntl.F_ADD_SEALS, 0x10 | fcntl.F_SEAL_SEAL)  # F_SEAL_FUTURE_WRITE
        found = room.run("spoil", keep_fds=(inputs, outputs)).values
        refused(found, "shrink3", "grow3", "write3", "punch3", "rewrite3", "map3", "shrink4", "grow4")
        assert found["write4"] == 0
        assert ours[:8] == b"contents"
        assert os.fstat(inputs).st_size == os.fstat(outputs).st_size == 8192
        ours.close()
        os.close(inputs)
        os.close(outputs)

    walled(check)


def test_closing_all_descriptors_is_only_an_exit(walled: Walled) -> None:
    def check(room: Room) -> None:
        found = room.run("descriptors")
        assert found.status == 7
        assert found.values == {"open": 3}

    walled(check)


def test_the_environment_is_ours(walled: Walled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "")
    monkeypatch.setenv("SECRET_KEY", "hunter2")

    def check(room: Room) -> None:
        scratch = str(room.folder / "scratch")
        lines = room.run("environment", env=(("OMP_NUM_THREADS", "1"),)).text.splitlines()
        fixed = ["PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", f"HOME={scratch}", f"TMPDIR={scratch}"]
        assert sorted(lines) == sorted([*fixed, "OMP_NUM_THREADS=1"])

    walled(check)


def test_nothing_survives_a_judge_that_is_killed(walled: Walled) -> None:
    def check(room: Room) -> None:
        child = os.fork()
        if child == 0:
            with room.walls.spawn(room.wall(profile="builder", processes=8), room.argv("outlive")):
                time.sleep(120)
            os._exit(0)
        wait_for(lambda: len(room.survivors()) >= 4)
        os.kill(child, 9)
        os.waitpid(child, 0)
        wait_for(lambda: room.survivors() == [])

    walled(check)


def wait_for(claim: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not claim():
        assert time.monotonic() < end, "it did not come to this"
        time.sleep(0.01)
