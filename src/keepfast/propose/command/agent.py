"""A coding-agent CLI as an agent: one turn is one headless run of it in a bare workspace, and what it left there.

Owns the order of a turn. Where it runs is the cage's business, what it says its reader's, how it ended the outcome's. Must not know the
judge, the ledger, git, or how a job's text was made. One object works on one turn at a time; its folder is its own.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from keepfast import settings
from keepfast.errors import MachineError
from keepfast.propose.agent import Job, Limits, Outcome, Turn, Usage
from keepfast.propose.command import billing, counter, outcome, secrecy, tools, workspace
from keepfast.propose.command.base import Options, Spec, command_line, variables
from keepfast.propose.command.cage import Cage, Room
from keepfast.propose.command.listen import Ears, End, Heard, listen, nothing
from keepfast.propose.command.notes import MAX_SAID, Notes, plain

PROMPT = """\
Read BRIEF.md in this folder first: it says what is wanted, the rules, and what is known. Then do it.
You may change only files at {editable}; every other change is thrown away. Nobody can answer a question: decide, and edit the files.
End with one line that begins with `Title:` and says in at most ten words what you changed.
"""
AGAIN = "The files in this folder were laid out anew: your earlier edits are there only where they were kept.\n"
VERSION_S = 30.0


class Setup(Struct, frozen=True):
    """Where an agent works and what is known of the machine.

    folder       its own, for as long as its conversations are to be gone on with; not in the task's repository
    cage         where it runs
    environment  what of the environment a CLI sees, by the names of its keys
    never        folders that are not shown as the place of a program: the user's home, the repository
    price        dollars of a model's tokens, for a CLI that tells none; None: unknown
    """

    folder: Path
    cage: Cage
    environment: Callable[[tuple[str, ...]], dict[str, str]] = settings.agent_environment
    never: tuple[str, ...] = ()
    price: Callable[[str, Usage], float | None] | None = None


class Start(Struct, frozen=True):
    """How a CLI is started. `keys`: what must not be handed on."""

    room: Room
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    keys: tuple[str, ...]


class CommandAgent:
    """One CLI with its options."""

    def __init__(self, spec: Spec, setup: Setup, options: Options | None = None, name: str = "") -> None:
        self.spec, self.setup, self.options = spec, setup, options or Options()
        self._name = name or spec.name
        self._version: tuple[str, str] = ("", "")
        folder = Path(os.path.abspath(setup.folder))
        self._workspace, self._home, self._temp = folder / "workspace", folder / "home", folder / "temp"
        self._programs = folder / "programs"
        self._billed = folder / "billed.json"

    @property
    def name(self) -> str:
        return self._name

    def turn(self, job: Job) -> Turn:
        """One turn. What the CLI or the network does is an Outcome; what the task or the user must mend is an error."""
        began = time.monotonic()
        environment = self._environment()
        program = self._program(environment["PATH"])
        if program is None:
            said = f"{self.options.program or self.spec.program} was not found on PATH"
            return Turn(Outcome.MISSING, said, seconds=time.monotonic() - began)
        secrets = secrecy.of(self._keys(environment), self._login_files())
        try:
            turn = self._work(job, program, environment, secrets)
        except MachineError as error:
            turn = Turn(Outcome.CRASHED, plain(error.text()))
        return replace(secrecy.hidden(turn, secrets), seconds=time.monotonic() - began)

    def _work(self, job: Job, program: str, environment: dict[str, str], keys: tuple[str, ...]) -> Turn:
        """Lays out, runs, reads back."""
        values = self._values(job) | {"api_key": "yes" if environment.get(self.spec.key_variable) else ""}
        room = self._room(job, program, environment["PATH"], values)
        environment = environment | self._homes() | variables(self.spec, values)
        if job.ask is not None:
            environment["PATH"] = f"{self._programs}{os.pathsep}{environment['PATH']}"
        version = self._asked_version(room, program, environment)
        notes = Notes()
        if job.session:
            notes.open(job.session)
        argv = (program, *command_line(self.spec, values), *self.options.extra)
        heard = self._heard(Start(room, argv, environment, keys), job, notes)
        if self.spec.hear is None:
            notes.say(heard.words[-MAX_SAID:])
        found = workspace.read_back(self._workspace, job)
        facts = outcome.Facts(notes, heard, found, job.limits, time.time(), self.spec.last_event, self.spec.hear is not None)
        judged = outcome.judge(facts)
        return Turn(
            outcome=judged.outcome,
            detail="; ".join(part for part in (judged.detail, self.setup.cage.fact) if part),
            changed=found.changed,
            title=_title(notes.said),
            usage=self._priced(notes, self._of_this_turn(notes)),
            version=version,
            session=notes.session,
            until=judged.until,
            said=notes.said,
        )

    def _heard(self, start: Start, job: Job, notes: Notes) -> Heard:
        """The turn itself. While it lasts the judge can be asked, if the job says so."""
        with counter.opened(self._workspace, job, start.keys) as asked:
            room = replace(start.room, fixed=(*start.room.fixed, asked.path)) if asked else start.room
            running = self.setup.cage.start(room, start.argv, start.environment)
            try:
                ears = Ears(self.spec.hear, self.spec.mutter)
                return listen(running, ears, notes, job.limits, asked.waited if asked else nothing)
            finally:
                running.end()

    def _priced(self, notes: Notes, usage: Usage) -> Usage:
        """The CLI's own dollars, else those of a table."""
        model = notes.model or self.options.model.rpartition("/")[2]
        if usage.dollars is not None or self.setup.price is None or not usage.tokens:
            return usage
        return replace(usage, dollars=self.setup.price(model, usage))

    def _of_this_turn(self, notes: Notes) -> Usage:
        """Without what earlier turns of the conversation have been billed for; that is kept beside the agent's home, out of its reach."""
        if not self.spec.running_total or not notes.session:
            return notes.usage
        billed = billing.read(self._billed)
        before = billed.get(notes.session, billing.NOTHING)
        now = (notes.input, notes.output, notes.cached)
        most: billing.Tokens = (max(before[0], now[0]), max(before[1], now[1]), max(before[2], now[2]))
        billing.write(self._billed, billed | {notes.session: most})
        parts = [max(0, total - earlier) for total, earlier in zip(now, before, strict=True)]
        return replace(notes.usage, input_tokens=parts[0], output_tokens=parts[1], cached_tokens=parts[2])

    def _environment(self) -> dict[str, str]:
        """A key for another server never goes to the CLI's own, nor the CLI's own keys to another server."""
        asked = ((self.options.key,) if self.options.key else ()) if self.options.base_url else self.spec.keys
        found = self.setup.environment(asked)
        if self.options.base_url:
            key = found.pop(self.options.key, "") or "none"  # a server that wants no key gets a word where the CLI insists on one
            found[self.spec.key_variable] = key
        return found

    def _keys(self, environment: Mapping[str, str]) -> list[str]:
        return [environment.get(name, "") for name in (*self.spec.keys, self.spec.key_variable)]

    def _program(self, path: str) -> str | None:
        found = shutil.which(self.options.program or self.spec.program, path=path)
        return os.path.abspath(found) if found else None

    def _login_files(self) -> list[tuple[str, Path]]:
        wanted = [(name, Path(self.options.login, name)) for name in self.spec.logins] if self.options.login else []
        return [(name, path) for name, path in wanted if path.is_file() and os.access(path, os.R_OK)]

    def _values(self, job: Job) -> dict[str, str]:
        prompt = PROMPT.replace("{editable}", ", ".join(f"`{glob}`" for glob in job.editable))
        prompt += counter.PROMPT if job.ask and self.setup.cage.isolates else ""  # elsewhere most are not allowed to run a program
        prompt += (AGAIN if job.session else "") + job.remark
        return {
            "prompt": prompt.strip(),
            "brief": str(self._workspace / workspace.BRIEF),
            "workspace": str(self._workspace),
            "home": str(self._home),
            "model": self.options.model,
            "base_url": self.options.base_url,
            "key": self.options.key,
            "session": job.session,
            "dollars": "" if job.limits.dollars is None else f"{job.limits.dollars:.4f}",
            "turns": str(job.limits.turns),
            "tools": os.pathsep.join(self.options.tools),
            "caged": "yes" if self.setup.cage.isolates else "",
            "login": "yes" if self._login_files() else "",
        }

    def _room(self, job: Job, program: str, path: str, values: Mapping[str, str]) -> Room:
        """The workspace made anew, the home kept with its conversations; what the CLI needs there is written again."""
        fixed = workspace.lay_out(self._workspace, job)
        workspace.clear(self._temp)
        self._temp.mkdir(mode=0o700)
        self._furnish(values)
        shown = (*tools.folders(program, path, never=self.setup.never), *self.options.tools)
        if job.ask is not None:
            python = counter.python()
            counter.install(self._programs, self._workspace, python)
            shown += (str(self._programs), *tools.folders(python, path, never=self.setup.never))
        return Room(str(self._workspace), str(self._home), str(self._temp), fixed, shown)

    def _furnish(self, values: Mapping[str, str]) -> None:
        """What the CLI needs in its home."""
        self._home.mkdir(exist_ok=True, mode=0o700)
        for folder in self._homes().values():
            secrecy.folder(self._home, os.path.relpath(folder, self._home))
        for name, text in self.spec.settings(values) if self.spec.settings else ():
            secrecy.write(self._home, name, text.encode())
        for name, source in self._login_files():
            if not os.path.lexists(self._home / name):  # it may have renewed its own since
                secrecy.write(self._home, name, source.read_bytes())

    def _homes(self) -> dict[str, str]:
        below = {"CONFIG": ".config", "DATA": ".local/share", "STATE": ".local/state", "CACHE": ".cache"}
        return {"HOME": str(self._home)} | {f"XDG_{name}_HOME": str(self._home / folder) for name, folder in below.items()}

    def _asked_version(self, room: Room, program: str, environment: Mapping[str, str]) -> str:
        """What `--version` says, asked once for each state of the program; "" when it says nothing that is one."""
        facts = os.stat(program)
        state = f"{program} {facts.st_mtime_ns} {facts.st_size} {facts.st_ino}"
        if self._version[0] != state:
            running = self.setup.cage.start(room, [program, "--version"], environment)
            try:
                heard = listen(running, Ears(), Notes(), Limits(seconds=VERSION_S))
            finally:
                running.end()
            found = re.search(r"\d+\.\d+[\w.+-]*", heard.words + heard.errors)
            known = found is not None and heard.status == 0 and heard.end is End.ITSELF
            self._version = (state, found[0][:40] if found is not None and known else "")
        return self._version[1]


def _title(said: str) -> str:
    """The line that begins with `Title:`, else the first one of the last message."""
    lines = [line.strip(" *#`") for line in said.splitlines() if line.strip()]
    titles = [line[6:].strip(" *`") for line in lines if line.lower().startswith("title:")]
    return plain(titles[-1] if titles else lines[0] if lines else "", 100)
