"""One walled process: begun, stopped, ended; and walls that cannot be entered."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import pytest
from msgspec.structs import replace

from keepfast.errors import MachineError, UsageError
from keepfast.walls.base import Walled as Process
from keepfast.walls.base import Walls
from tests.walls.kit import Check, Room, inside

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

Walled = Callable[[Check], None]
LONG_S = 60.0


def walls_here() -> Walls:
    return Walls.detect()


@pytest.fixture
def room(probe: bytes) -> Iterator[Room]:
    made = Room(walls_here(), probe)
    yield made
    made.assert_nothing_left()
    made.close()


def stopped(walled: Process) -> None:
    os.kill(walled.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, walled.pid, os.WSTOPPED)


def test_a_stopped_process_goes_on_and_can_be_killed(walled: Walled) -> None:
    def check(room: Room) -> None:
        with room.walls.spawn(room.wall(), room.argv("spin")) as spinning:
            stopped(spinning)
            assert spinning.wait(0) is None
            os.kill(spinning.pid, signal.SIGCONT)
            assert spinning.wait(0) is None
        assert spinning.kill() == -signal.SIGKILL
        outliving = room.walls.spawn(room.wall(profile="builder", processes=8), room.argv("outlive"))
        stopped(outliving)
        assert outliving.kill() == -signal.SIGKILL
        assert outliving.kill() == -signal.SIGKILL, "once more changes nothing"
        assert room.survivors() == []

    walled(check)


def test_what_has_ended_keeps_its_status(room: Room) -> None:
    with room.walls.spawn(room.wall(), room.argv("descriptors")) as over:
        assert over.wait(LONG_S) == 7
    assert over.kill() == 7


def test_signals_are_told_apart(room: Room) -> None:
    with room.walls.spawn(room.wall(), room.argv("crash")) as crashed:
        assert crashed.wait(LONG_S) == -signal.SIGSEGV
    with room.walls.spawn(room.wall(), room.argv("abort")) as gave_up:
        status = gave_up.wait(LONG_S)
        assert status in (-signal.SIGABRT, -signal.SIGSEGV, -signal.SIGILL), "process 1 of a namespace ignores its own SIGABRT"


def test_the_judge_is_the_parent(room: Room) -> None:
    with room.walls.spawn(room.wall(), room.argv("sleep")) as asleep, open(f"/proc/{asleep.pid}/stat") as file:
        assert int(file.read().rpartition(")")[2].split()[1]) == os.getpid()


def test_files_are_taken_out_of_the_scratch_folder(walled: Walled) -> None:
    def check(room: Room) -> None:
        shell = ("/bin/sh", "-c", "echo made > file; exit 3", room.mark)
        with room.walls.spawn(room.wall(profile="builder", read=("/bin", "/usr/bin"), processes=4), shell) as made:
            assert made.wait(LONG_S) == 3
            fd = os.open("file", os.O_RDONLY | os.O_NOFOLLOW, dir_fd=made.scratch_fd)
            with open(fd) as file:
                assert file.read() == "made\n"
        assert made.scratch_fd == -1
        if room.walls.mode == "plain":
            os.unlink(room.folder / "scratch" / "file")

    walled(check)


def test_kept_descriptors_become_three_and_on(room: Room) -> None:
    kept = [os.open("/dev/null", os.O_RDONLY) for _ in range(5)]
    found = room.run("descriptors", keep_fds=(kept[4], kept[0], kept[2]))
    assert found.values == {"open": 6}
    for fd in kept:
        os.close(fd)


def test_no_descriptor_of_the_judge_is_lost(room: Room) -> None:
    room.run("nothing")
    before = os.listdir("/proc/self/fd")
    for _ in range(3):
        room.run("nothing")
        with pytest.raises(MachineError):
            room.walls.spawn(room.wall(), ("/nowhere/at/all",))
    assert os.listdir("/proc/self/fd") == before


def test_a_program_that_is_not_there_is_named(walled: Walled) -> None:
    def check(room: Room) -> None:
        with pytest.raises(MachineError, match="/nowhere/at/all") as caught:
            room.walls.spawn(room.wall(), ("/nowhere/at/all",))
        assert "keepfast doctor" in caught.value.text()
        with pytest.raises(MachineError, match="start"):
            room.walls.spawn(room.wall(read=("/etc/passwd",)), ("/etc/passwd",))

    walled(check)


def test_core_that_is_not_there_is_an_error_of_ours(room: Room) -> None:
    with pytest.raises(MachineError, match="cores"):
        room.walls.spawn(room.wall(cores=(1000,)), room.argv("nothing"))


def test_walls_are_never_thinner_than_asked_for(room: Room) -> None:
    if room.walls.mode == "plain":
        pytest.skip("no namespaces here to ask too much of")
    # As root: something else than `enter`. As an ordinary user: namespaces that this user may not make.
    wrong = replace(room.walls, program=str(room.probe)) if os.getuid() == 0 else replace(room.walls, mode="root")
    with pytest.raises(MachineError, match="cannot enter the walls"):
        wrong.spawn(room.wall(), room.argv("nothing"))


@pytest.mark.parametrize("path", ["/", "relative/path", "/proc/../"])
def test_a_list_that_opens_everything_is_a_mistake(room: Room, path: str) -> None:
    with pytest.raises(ValueError, match=r"whole machine|absolute"):
        room.walls.spawn(room.wall(read=(path,)), room.argv("nothing"))


def test_what_is_read_is_not_in_the_scratch_folder(room: Room) -> None:
    (room.folder / "scratch").mkdir(exist_ok=True)
    with pytest.raises(ValueError, match="inside the scratch"):
        room.walls.spawn(room.wall(read=(str(room.folder / "scratch"),)), room.argv("nothing"))


def test_the_scratch_folder_may_lie_in_a_folder_that_is_read(walled: Walled) -> None:
    def check(room: Room) -> None:
        places = (str(room.folder), str(room.folder / "scratch"))
        found = room.run("write", *places, read=(str(room.folder),)).values
        assert found[f"create {places[0]}"] != 0
        assert found[f"create {places[1]}"] == 0
        if room.walls.mode == "plain":
            (room.folder / "scratch" / "keepfast-hostile").unlink()
            (room.folder / "scratch" / "keepfast-hostile-folder").rmdir()

    walled(check)


def test_partial_walls_name_the_folder_that_is_closed(probe: bytes) -> None:
    def check(room: Room) -> None:
        closed = room.folder / "closed"
        (closed / "inner").mkdir(parents=True)
        closed.chmod(0o700)
        with pytest.raises(MachineError, match="closed to other users") as caught:
            room.walls.spawn(room.wall(read=(str(closed / "inner"),)), room.argv("nothing"))
        assert f"chmod o+x {closed}" in caught.value.text()
        room.run("nothing")

    inside("partial as root", probe, check)


def test_namespaces_open_what_lies_in_a_closed_folder(probe: bytes) -> None:
    def check(room: Room) -> None:
        closed = room.folder / "closed"
        (closed / "inner").mkdir(parents=True)
        closed.chmod(0o700)
        (closed / "inner" / "file").write_text("x")
        (room.folder / "way").symlink_to("closed/inner")
        paths = (str(closed / "inner" / "file"), str(room.folder / "way" / "file"))
        found = room.run("read", *paths, read=(str(room.probe), str(room.folder / "way"))).values
        assert found == {f"read {path}": 0 for path in paths}

    inside("root", probe, check)


def test_detect_refuses_nonsense() -> None:
    with pytest.raises(UsageError, match="unknown strength"):
        Walls.detect("thick")  # type: ignore[arg-type]


def test_facts_name_what_holds() -> None:
    found = walls_here()
    names = [fact.name for fact in found.facts]
    assert {"namespaces", "landlock", "seccomp", "scratch quota", "uid"} <= set(names)
    assert all(fact.value for fact in found.facts)
    assert isinstance(found, Walls)


def test_many_at_once(room: Room) -> None:
    walled = [room.walls.spawn(room.wall(scratch=str(room.folder / f"scratch{n}")), room.argv("sleep")) for n in range(8)]
    assert len({w.pid for w in walled}) == 8
    assert len(room.survivors()) >= 8
    for one in walled:
        one.kill()
    assert room.survivors() == []
