"""Asking the judge inside a turn: through the program that an agent calls, and as one who means harm."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from keepfast.errors import MachineError
from keepfast.propose.agent import Changed, Limits, Outcome, Turn
from keepfast.propose.command import client, counter, workspace
from keepfast.propose.command.cage import Bubblewrap, find_cage
from keepfast.propose.command.counter import Counter
from keepfast.propose.command.listen import End, Watch
from keepfast.propose.command.notes import Notes
from tests.propose.command.conftest import RECORDED, Fake, descriptors, job

NEW = (("kernel/kernel.c", b"int x; // NEW\n"),)
SHELL = """\
#!/bin/sh
if [ "$1" = --version ]; then echo 1.2.3; exit 0; fi
echo 'int x; // NEW' > kernel/kernel.c
{body}
cat <<'END'
{events}
END
"""


class Judge:
    """Remembers what it was asked. `wait`: what it waits for."""

    def __init__(self, words: str = "2x faster", wait: threading.Event | None = None) -> None:
        self.words, self.wait, self.asked = words, wait, list[Changed]()

    def __call__(self, changed: Changed) -> str:
        self.asked.append(changed)
        if self.wait is not None:
            assert self.wait.wait(30)
        return self.words


@pytest.fixture
def bubblewrap() -> Bubblewrap:
    try:
        found = find_cage(os.environ.get("PATH", ""))
    except MachineError as error:
        pytest.skip(error.what)
    assert isinstance(found, Bubblewrap)
    return found


def said(fake: Fake, body: str, ask: Judge, **given: object) -> tuple[str, Turn]:
    """What a CLI hears that is a shell script and runs `body`; and its turn."""
    agent = fake("", **given)
    events = (RECORDED / "claude-edited.jsonl").read_text()
    program = Path(agent.setup.environment(())["PATH"].split(":")[0], "claude")
    program.write_text(SHELL.format(body=body, events=events))
    turn = agent.turn(job(ask=ask))
    assert turn.outcome is Outcome.EDITED, turn
    return (dict(turn.changed)["kernel/said"] or b"").decode(), turn


# --------------------------------------------------------------------------------------------- the program


def test_it_asks_by_name(fake: Fake) -> None:
    judge = Judge()
    heard, turn = said(fake, "{ keepfast try; echo $?; } > ../said 2>&1; mv ../said kernel/said", judge)
    assert heard == "2x faster\n0\n"
    assert judge.asked == [NEW]
    assert "isolation" in turn.detail


@pytest.mark.parametrize("system", [True, False], ids=["the system's Python", "our own Python"])
def test_it_asks_from_a_cage(fake: Fake, bubblewrap: Bubblewrap, monkeypatch: pytest.MonkeyPatch, system: bool) -> None:
    if not system:
        monkeypatch.setattr(counter, "SYSTEM_PYTHON", "/nonexistent/python3")
    elif not os.path.exists(counter.SYSTEM_PYTHON):
        pytest.skip("the system has no Python")
    judge = Judge()
    body = "rm -f .keepfast 2> /dev/null; echo kept > BRIEF.md; mv .keepfast gone; keepfast try > /tmp/said; cp /tmp/said kernel/said"
    heard, turn = said(fake, body, judge, cage=bubblewrap)
    assert (heard, judge.asked, turn.detail) == ("2x faster\n", [NEW], "")


def test_without_a_judge_there_is_nobody_to_ask(fake: Fake) -> None:
    agent = fake("import shutil; open('kernel/told', 'w').write(f'{shutil.which(\"keepfast\")} {sys.argv}')\nshow('claude-edited')")
    told = dict(agent.turn(job()).changed)["kernel/told"] or b""
    assert told.startswith(b"None ")
    assert b"keepfast try" not in told


def test_the_prompt_says_so_where_it_may_run_programs(fake: Fake, bubblewrap: Bubblewrap) -> None:
    body = 'printf %s "$*" > /tmp/said; cp /tmp/said kernel/said'
    assert counter.PROMPT.strip() in said(fake, body, Judge(), cage=bubblewrap)[0]
    assert "keepfast try" not in said(fake, 'printf %s "$*" > ../said; mv ../said kernel/said', Judge())[0]


def test_a_path_of_any_length(fake: Fake, tmp_path: Path) -> None:
    place = tmp_path / ("x" * 120) / "it's a workspace"
    place.parent.mkdir()
    workspace.lay_out(place, job())
    counter.install(tmp_path / "pro grams", place, counter.python())
    (place / "kernel" / "kernel.c").write_bytes(NEW[0][1])
    program = [str(tmp_path / "pro grams" / "keepfast"), "try"]
    with Counter(place, job(), Judge("yes")):
        assert run(program) == (0, b"yes\n")
        (place / "kernel" / "kernel.c").write_bytes(job().files[0].data)
        assert run(program) == (1, b"No editable file differs from what you were given: there is nothing to try.\n")
        assert run(["/bin/sh", "-c", '"$0" --help', program[0]])[0] == 2
        assert run([program[0], "log"])[0] == 2
    assert run(program) == (1, b"")
    assert not (place / client.SOCKET).exists()


def run(argv: list[str]) -> tuple[int, bytes]:
    done = subprocess.run(argv, capture_output=True, timeout=30, check=False, env={"PATH": "/usr/bin:/bin"})
    return done.returncode, done.stdout


# --------------------------------------------------------------------------------------------- what is asked about


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    workspace.lay_out(folder, job())
    (folder / "kernel" / "kernel.c").write_bytes(NEW[0][1])
    return folder


def test_the_socket_is_no_file_of_a_candidate(place: Path) -> None:
    everything = job(editable=("**",))
    with Counter(place, everything, Judge()):
        found = workspace.read_back(place, everything)
        assert client.SOCKET not in dict(found.changed)
        assert found.left_out == ()


def test_what_is_left_out_is_said_and_words_cannot_steer(place: Path) -> None:
    (place / "kernel" / "a.out").write_bytes(b"\0")
    with Counter(place, job(), Judge("\x1b[2J fast\nyes\ud800" + "y" * 100_000)):
        answer = client.ask(str(place)).decode()
    assert answer.startswith("ok\n\\x1b[2J fast\nyes")
    assert answer.endswith("y\nLeft out: 'kernel/a.out' is binary.\n")
    assert len(answer) < counter.MOST_SAID + 200


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda f: (f / "kernel" / "kernel.c").write_text("k3y-k3y-k3y"), "an editable file holds a key"),
        (lambda f: [(f / "kernel" / "kernel.c").unlink(), (f / "kernel" / "kernel.c").symlink_to("/etc/passwd")], "is a link"),
        (lambda f: f.rename(f.with_name("moved")), "its workspace is gone"),
    ],
)
def test_what_is_not_asked(place: Path, spoil: Callable[[Path], object], why: str) -> None:
    judge = Judge()
    with Counter(place, job(), judge, ("k3y-k3y-k3y",)):
        spoil(place)
        where = place if place.exists() else place.with_name("moved")
        answer = client.ask(str(where)).decode()
    assert answer.startswith("no\nThis cannot be tried: ")
    assert why in answer
    assert judge.asked == []


def test_a_folder_that_becomes_a_link_while_it_is_read(place: Path, tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "key.c").write_text("secret")
    for name in ("a", "b"):
        (place / "kernel" / name).mkdir()
        (place / "kernel" / name / "key.c").write_text("mine")
    with workspace._entered(place, None) as top:
        assert top is not None
        walk = workspace._walk(top, "", ("kernel/**",))
        while next(walk)[0] != "kernel/a/key.c":
            pass
        (place / "kernel" / "b").rename(tmp_path / "b")
        (place / "kernel" / "b").symlink_to(tmp_path / "secrets")
        assert "kernel/b/key.c" not in [path for path, _ in walk]


# --------------------------------------------------------------------------------------------- peers that mean harm


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counter, "REQUEST_S", 0.1)
    monkeypatch.setattr(counter, "ANSWER_S", 0.1)


@contextmanager
def connected(place: Path, said: bytes = b"") -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(place / client.SOCKET))
        peer.settimeout(30)
        peer.sendall(said)
        yield peer


def heard(peer: socket.socket) -> bytes:
    try:
        return b"".join(iter(lambda: peer.recv(1 << 16), b""))
    except ConnectionResetError:  # it was hung up on with words of its own unread
        return b""


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("garbage", [b"", b"tr", b"\0" * 50, b"x" * 5000, b"\n", b"try \n", b"TRY\n", b"GET / HTTP/1.1\r\n\r\n", b"\xff\n"])
def test_garbage_costs_a_moment(place: Path, garbage: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = Judge()
    with Counter(place, job(), judge):
        with connected(place, garbage) as peer:
            assert heard(peer) in (b"", client.NO + client.USAGE.encode() + b"\n")
        assert judge.asked == []
        monkeypatch.setattr(counter, "REQUEST_S", 30.0)
        assert client.ask(str(place)) == b"ok\n2x faster\n"


@pytest.mark.usefixtures("quick")
def test_a_crowd_is_served_one_after_the_other(place: Path) -> None:
    before, threads, judge = descriptors(), threading.active_count(), Judge()
    with Counter(place, job(), judge):
        for _ in range(200):
            with connected(place, b"try\n"):
                pass  # gone before it was met
        crowd = [socket.socket(socket.AF_UNIX) for _ in range(counter.WAITING)]
        for peer in crowd:
            peer.connect(str(place / client.SOCKET))
        assert threading.active_count() == threads + 1
        assert client.ask(str(place)) == b"ok\n2x faster\n"
        for peer in crowd:
            peer.close()
    assert (descriptors(), threading.active_count()) == (before, threads)


@pytest.mark.usefixtures("quick")
def test_a_peer_that_does_not_listen(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counter, "MOST_SAID", 1 << 23)
    judge = Judge("y" * (1 << 23))
    with Counter(place, job(), judge):
        with connected(place, b"try\n"), connected(place, b"nonsense\n") as other:
            assert heard(other).startswith(client.NO)
        assert len(judge.asked) == 1


def test_an_answer_waits_for_its_asker(place: Path) -> None:
    """A tool's own time limit ends the program, not the question."""
    judge = Judge(wait=threading.Event())
    with Counter(place, job(), judge) as open_:
        with connected(place, b"try\n"):
            until(lambda: bool(judge.asked))
        for _ in range(10):
            with connected(place, b"try\n"):
                pass  # nobody is asked for those who have gone
        judge.wait.set()  # type: ignore[union-attr]
        assert client.ask(str(place)) == b"ok\n2x faster\n"
        assert judge.asked == [NEW], "the answer to the same files was kept"
        (place / "kernel" / "kernel.c").write_text("other")
        assert client.ask(str(place)) == b"ok\n2x faster\n"
        assert len(judge.asked) == 2
        assert open_.waited() > 0.0


def test_the_turn_ends_after_the_question(place: Path) -> None:
    before, judge = descriptors(), Judge(wait=threading.Event())
    open_ = Counter(place, job(), judge).__enter__()
    peer = socket.socket(socket.AF_UNIX)
    peer.connect(str(place / client.SOCKET))
    peer.sendall(b"try\n")
    until(lambda: bool(judge.asked))
    until(lambda: open_.waited() > 0.05)
    threading.Timer(0.2, judge.wait.set).start()  # type: ignore[union-attr]
    open_.__exit__(None, None, None)
    assert judge.wait.is_set()  # type: ignore[union-attr]
    peer.close()
    until(lambda: descriptors() == before)


def test_time_that_the_judge_takes_is_not_the_agent_s() -> None:
    limits = Limits(seconds=0.0)
    assert Watch(Notes(), limits, lambda: 0.0).over() is End.TIME
    assert Watch(Notes(), limits, lambda: 60.0).over() is None


def until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not done():
        assert time.monotonic() < end
        time.sleep(0.01)
