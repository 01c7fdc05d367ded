"""What still holds where the kernel offers less: without Landlock, without seccomp, without anything."""

from __future__ import annotations

import errno
import os

import pytest

from tests.walls.kit import Room, inside
from tests.walls.test_hostile import refused

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def test_without_landlock_a_runner_still_writes_nothing(probe: bytes) -> None:
    def check(room: Room) -> None:
        victim = room.folder / "victim"
        victim.write_text("answers")
        found = room.run("write", str(room.folder), "/tmp", str(room.folder / "scratch")).values | room.run("change", str(victim)).values
        refused(found, *found)
        assert len(found) == 16
        assert victim.read_text() == "answers"
        refused(room.run("sockets", "x").values, "inet", "unix", "pair")

    inside("partial as user, no Landlock", probe, check)


def test_without_seccomp_files_stay_closed(probe: bytes) -> None:
    def check(room: Room) -> None:
        secret = room.folder / "secret"
        secret.write_text("answers")
        refused(room.run("read", str(secret), "/etc/passwd").values, f"read {secret}", "read /etc/passwd")
        refused(room.run("write", str(room.folder)).values, f"create {room.folder}")

    inside("partial as user, no seccomp", probe, check)


@pytest.mark.parametrize("mode", ["none as root", "none as user", "partial as user, no seccomp"])
def test_even_without_walls_nothing_survives(probe: bytes, mode: str) -> None:
    def check(room: Room) -> None:
        found = room.run("daemonise", profile="builder", processes=50)
        assert found.values["setsid"] == 0, "nothing keeps it in its session here"
        assert found.status == 0

    inside(mode, probe, check)


def test_none_says_what_it_lacks(probe: bytes) -> None:
    def check(room: Room) -> None:
        assert room.walls.strength == "none"
        values = {fact.name: fact.value for fact in room.walls.facts}
        assert all(values[name].startswith("no") for name in ("namespaces", "landlock", "seccomp", "scratch quota"))
        assert "--security-opt" in values["namespaces"] or "SYS_ADMIN" in values["namespaces"]
        assert os.getuid() != 0 or errno.EPERM not in room.run("write", str(room.folder)).values.values()

    inside("none as user", probe, check)
