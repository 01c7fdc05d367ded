"""Programs of a few lines, captured as the command does it: in processes of their own, that never see keepfast."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from msgspec import Struct

from keepfast import settings
from keepfast.harvest import host, target
from keepfast.harvest.records import Call, Captured

BARE = """
class Thing: pass
def f(x, k=2, *, mode="plain"):
    return x * k
"""


class Shown(Struct):
    code: int
    captured: Captured
    paths: list[Path]

    @property
    def calls(self) -> int:
        return self.captured.calls

    def of(self, **numbers: object) -> Call:
        """The only kind of call with these arguments, as Python writes them."""
        found = [
            c for c in self.captured.kinds if {v.name: v.text for v in c.values}.items() >= {n: repr(v) for n, v in numbers.items()}.items()
        ]
        assert len(found) == 1, self.captured.kinds
        return found[0]


class Program:
    """Files in a folder, and what comes of running one of them under the hook."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    def capture(self, what: str, *command: str, bytes_of: int = 8, **wishes: int) -> Shown:
        self.count += 1
        work = self.folder / f"work{self.count}"
        work.mkdir()
        wish = host.Wish(target.parse(what), command, megabytes=bytes_of, **wishes)
        site = host.prepare(work, wish)
        env = settings.program_environment(str(site), eager=False)
        code = host.run(command, env | {"PYTHONPATH": os.pathsep.join([str(site), str(self.folder)])})
        captured, paths = host.gather(work, wish, code)
        return Shown(code, captured, paths)

    def python(self, what: str, script: str, *arguments: str, **wishes: int) -> Shown:
        return self.capture(what, sys.executable, str(self.folder / script), *arguments, **wishes)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    monkeypatch.chdir(tmp_path)
    found = Program(tmp_path)
    found.write("lib.py", BARE)
    return found


def plain(folder: Path, script: str, *arguments: str) -> tuple[int, str]:
    """The same program without the hook: exit code and what it printed."""
    env = os.environ | {"PYTHONPATH": str(folder)}
    done = subprocess.run([sys.executable, str(folder / script), *arguments], env=env, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout
