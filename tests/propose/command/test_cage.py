"""Isolation by bubblewrap where it exists, the choice between it and none, and what a program needs to be seen."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from pathlib import Path

import pytest

from keepfast.errors import MachineError
from keepfast.propose.agent import Limits, Outcome
from keepfast.propose.command import cage, tools
from keepfast.propose.command.base import Options
from keepfast.propose.command.cage import Bubblewrap, Plain, find_cage
from tests.propose.command.conftest import EDIT, Fake, alive, descriptors, job


@pytest.fixture
def bubblewrap() -> Bubblewrap:
    try:
        found = find_cage(os.environ.get("PATH", ""))
    except MachineError as error:
        pytest.skip(error.what)
    assert isinstance(found, Bubblewrap)
    return found


PYTHON = (sys.prefix, sys.base_prefix)


def look(fake: Fake, bubblewrap: Bubblewrap, body: str, **changes: object) -> dict[str, object]:
    """What `body` finds inside: it fills `seen`."""
    text = f"import json\nseen = {{}}\n{body}\njson.dump(seen, open('kernel/seen.json', 'w'))\nshow('claude-edited')"
    options = Options(tools=(*PYTHON, str(Path(__file__).parent / "recorded")))
    turn = fake(text, cage=bubblewrap, options=options).turn(job(**changes))
    assert turn.outcome is Outcome.EDITED, turn
    assert turn.detail == ""
    found: dict[str, object] = json.loads(dict(turn.changed)["kernel/seen.json"] or b"")
    return found


def test_it_sees_its_folders_and_nothing_of_the_user(fake: Fake, bubblewrap: Bubblewrap, tmp_path: Path) -> None:
    (tmp_path / "ledger.db").write_text("secret")
    seen = look(
        fake,
        bubblewrap,
        f"seen['ledger'] = os.path.exists({str(tmp_path / 'ledger.db')!r})\n"
        f"seen['tests'] = os.path.exists({str(Path(__file__).parents[2] / 'conftest.py')!r})\n"
        f"seen['run'] = sorted(os.listdir({str(tmp_path / 'run')!r}))\n"
        "seen['here'] = sorted(os.listdir('.'))\n"
        "seen['home'] = [os.path.exists(d) for d in ('/root/.ssh', '/home', '/etc/shadow', '/var', '/sys')]\n"
        "seen['processes'] = len([n for n in os.listdir('/proc') if n.isdigit()])\n"
        "seen['tmp'] = os.environ['TMPDIR']",
    )
    assert seen["here"] == ["BRIEF.md", "context", "kernel", "reference.py"]
    assert (seen["ledger"], seen["tests"]) == (False, False)
    assert seen["run"] == ["home", "workspace"]
    assert seen["home"] == [False] * 5
    assert (seen["processes"], seen["tmp"]) == (2, "/tmp")


def test_what_is_for_reading_cannot_be_written(fake: Fake, bubblewrap: Bubblewrap, tmp_path: Path) -> None:
    seen = look(
        fake,
        bubblewrap,
        "for p in ('BRIEF.md', 'context/card.md', 'context/new.md', 'reference.py', '/usr/x', '/etc/x', sys.argv[0] + '.x'):\n"
        "    try:\n        open(p, 'w').close(); seen[p] = 'written'\n    except OSError as e:\n        seen[p] = 'no'\n"
        "open(os.environ['HOME'] + '/mine', 'w').close(); open('/tmp/mine', 'w').close(); open('new.txt', 'w').close()\n"
        "try:\n    open('../beside', 'w').close()\nexcept OSError:\n    pass",
    )
    assert [path for path, how in seen.items() if how != "no"] == []
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == ["home", "temp", "workspace"]


def test_the_network_is_shared(fake: Fake, bubblewrap: Bubblewrap) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=lambda: server.accept()[0].close())
        thread.start()
        address = server.getsockname()
        body = f"import socket\nsocket.create_connection({address!r}).close()\nseen['net'] = 1"
        seen = look(fake, bubblewrap, body)
        thread.join()
    assert seen == {"net": 1}


def test_everything_inside_ends_at_the_limit(fake: Fake, bubblewrap: Bubblewrap, tmp_path: Path) -> None:
    mark = f"{os.getpid()}.5"
    body = (
        f"subprocess.Popen(['/bin/sleep', '1{mark}'])\n"
        f"subprocess.Popen(['/usr/bin/env', '-i', '/bin/sleep', '2{mark}'], start_new_session=True, stdout=-3, stderr=-3)\ntime.sleep(100)"
    )
    agent = fake(body, cage=bubblewrap, options=Options(tools=PYTHON))
    before = descriptors()
    turn = agent.turn(job(limits=Limits(seconds=2)))
    assert turn.outcome is Outcome.TIMED_OUT
    assert turn.detail == "ended after 2 s, its limit"
    assert not [pid for pid in os.listdir("/proc") if pid.isdigit() and alive(int(pid)) and mark.encode() in _words(pid)]
    assert descriptors() == before


def _words(pid: str) -> bytes:
    try:
        return Path("/proc", pid, "cmdline").read_bytes()
    except OSError:
        return b""


def test_exit_status_and_signal(fake: Fake, bubblewrap: Bubblewrap) -> None:
    options = Options(tools=PYTHON)
    turn = fake("print('no', file=sys.stderr); sys.exit(7)", cage=bubblewrap, options=options).turn(job())
    assert (turn.outcome, turn.detail) == (Outcome.CRASHED, "exit status 7: no")


def test_the_choice(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cage, "_packaged", lambda: None)
        assert isinstance(find_cage(str(tmp_path), isolate=False), Plain)
        with pytest.raises(MachineError, match="bubblewrap is not installed"):
            find_cage(str(tmp_path))
        program = tmp_path / "bwrap"
        program.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2; exit 1\n")
        program.chmod(0o755)
        with pytest.raises(MachineError, match="No permissions to create new namespace"):
            find_cage(str(tmp_path))
        program.write_text("#!/bin/sh\nexit 0\n")
        assert isinstance(find_cage(str(tmp_path)), Bubblewrap)


def test_a_bubblewrap_that_fails_is_a_crash(fake: Fake, tmp_path: Path) -> None:
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2; exit 1\n")
    program.chmod(0o755)
    turn = fake(EDIT, cage=Bubblewrap(str(program))).turn(job())
    assert turn.outcome is Outcome.CRASHED
    assert "setting up uid map" in turn.detail


# --------------------------------------------------------------------------------------------- what a program needs


def program(path: Path, first: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{first}\n")
    path.chmod(0o755)
    return path


def test_a_package_of_node(tmp_path: Path) -> None:
    node = program(tmp_path / "node20/bin/node")
    script = program(tmp_path / "lib/node_modules/@x/agent/bin/a.js", "#!/usr/bin/env node")
    link = tmp_path / "bin/agent"
    link.parent.mkdir()
    link.symlink_to("../lib/node_modules/@x/agent/bin/a.js")
    found = tools.folders(str(link), f"{node.parent}:/usr/bin")
    assert found == (str(tmp_path / "bin"), str(tmp_path / "lib/node_modules"), str(node.parent), str(tmp_path / "node20"))
    assert str(script).startswith(found[1])


def test_a_single_file_behind_links(tmp_path: Path) -> None:
    real = program(tmp_path / "share/versions/2.1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/claude").symlink_to(real)
    assert tools.folders(str(tmp_path / "bin/claude"), "") == (str(tmp_path / "bin"), str(real.parent))


def test_a_program_of_the_system_needs_nothing() -> None:
    assert tools.folders("/usr/bin/env", "/usr/bin") == ()


def test_a_home_is_never_shown_for_a_program_in_it(tmp_path: Path) -> None:
    found = tools.folders(str(program(tmp_path / "agent")), "", never=(str(tmp_path),))
    assert found == (str(tmp_path / "agent"),)
    node = program(tmp_path / "bin/node")
    script = program(tmp_path / "tools/agent", f"#!{node}")
    found = tools.folders(str(script), "", never=(str(tmp_path),))
    assert found == (str(script.parent), str(node.parent), str(script)) or str(tmp_path) not in found


def test_a_program_that_cannot_be_read(tmp_path: Path) -> None:
    assert tools.folders(str(tmp_path / "bin" / "absent"), "") == (str(tmp_path / "bin"),)
