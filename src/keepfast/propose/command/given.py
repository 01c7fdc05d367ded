"""Agents by name: the CLIs as they are, and what the user's file of agents changes in them or adds.

Owns that file, agents.toml, and every error in it. Must not know jobs, cages, the ledger. It is read when a name is looked up; a file in a
repository is never read, as it says which programs are started and which keys they see.

    [codex]                                  a CLI, otherwise than by default
    model = "MODEL"

    [local]                                  the same under another name, at another server
    kind = "codex"
    base_url = "http://127.0.0.1:8000/v1"

    [mine]                                   any command
    argv = "my-agent --dir {workspace} {prompt}"
    key = "MY_AGENT_KEY"
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from keepfast import settings
from keepfast.errors import UsageError, nearest
from keepfast.propose.agent import Agent, Job, Limits, Turn
from keepfast.propose.command import NAMES, built_in, generic
from keepfast.propose.command.agent import CommandAgent, Setup
from keepfast.propose.command.base import Options, Spec, Variable, check_names
from keepfast.propose.prices import Price, cost

ANY = "command"
TAKEN = ("deck", "search", "random", "mcp", "chat", "anthropic")
Positive = Annotated[float, Meta(gt=0)]


class Entry(Struct, frozen=True, forbid_unknown_fields=True):
    """One section. Empty: as by default.

    kind         which CLI it is, or `command`; may be left out where the section's name or `argv` says it
    argv         the command line of another agent, as one would type it, with the names of command/base.py in it
    program      the CLI's path, or its name on PATH
    model        as the CLI writes it
    base_url     another server that speaks what the CLI speaks. The CLI's own keys are not sent there
    key          the variable that holds the key: for `base_url`, or the one that another agent sees
    extra        further words for its command line
    environment  further variables; names in {} as in `argv`
    tools        folders that it may read besides: compilers, headers
    login        a home folder whose login of this CLI is copied into the agent's own home
    seconds, turns, dollars   its limits for one turn
    price        dollars for a million tokens, where its own bill is none
    """

    kind: str = ""
    argv: str = ""
    program: str = ""
    model: str = ""
    base_url: str = ""
    key: str = ""
    extra: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    tools: tuple[str, ...] = ()
    login: str = ""
    seconds: Positive | None = None
    turns: Annotated[int, Meta(ge=1)] | None = None
    dollars: Positive | None = None
    price: Price | None = None


class OnTerms(Struct, frozen=True):
    """An agent with the limits and the price that its section names."""

    agent: Agent
    terms: Entry

    @property
    def name(self) -> str:
        return self.agent.name

    def turn(self, job: Job) -> Turn:
        turn = self.agent.turn(replace(job, limits=self._limits(job.limits)))
        if self.terms.price is None or not turn.usage.tokens:
            return turn
        return replace(turn, usage=replace(turn.usage, dollars=cost(self.terms.price, turn.usage)))

    def _limits(self, asked: Limits) -> Limits:
        """What is left of the run's money is never exceeded; time and turns are the user's to say."""
        own = self.terms
        dollars = min((d for d in (own.dollars, asked.dollars) if d is not None), default=None)
        return replace(asked, seconds=own.seconds or asked.seconds, turns=own.turns or asked.turns, dollars=dollars)


# --------------------------------------------------------------------------------------------- by name


def names() -> tuple[str, ...]:
    """Every agent that can be named. UsageError for a file that is none."""
    return (*NAMES, *(name for name in entries() if name not in NAMES))


def spec(name: str) -> Spec:
    """What is started under that name. UsageError, with the nearest, for one that is not known."""
    found = entries()
    if name not in (*NAMES, *found):
        known = (*NAMES, *found)
        raise UsageError(
            f"no agent is called `{name}`.{nearest(name, known)}",
            next_step=f"known are {', '.join(known)}; another command gets a name in {_file_name()}",
        )
    return _spec(name, found.get(name, Entry()))


def hire(name: str, setup: Setup) -> Agent:
    """The agent of that name, with what the file says of it."""
    entry, made = entries().get(name, Entry()), spec(name)
    agent = CommandAgent(made, setup, _options(entry), name)
    plain = (entry.seconds, entry.turns, entry.dollars, entry.price) == (None,) * 4
    return agent if plain else OnTerms(agent, entry)


def _spec(name: str, entry: Entry) -> Spec:
    kind, keys = _kind(name, entry), (entry.key,) if entry.key and not entry.base_url else ()
    made = generic.spec(name, entry.argv, keys) if kind == ANY else built_in(kind)
    more = tuple(Variable(variable, text) for variable, text in entry.environment.items())
    return replace(made, name=name, environment=(*made.environment, *more))


def _kind(name: str, entry: Entry) -> str:
    return entry.kind or (name if name in NAMES else ANY)


def _options(entry: Entry) -> Options:
    tools = tuple(str(Path(folder).expanduser()) for folder in entry.tools)
    program, login = (str(Path(text).expanduser()) if text.startswith("~") else text for text in (entry.program, entry.login))
    return Options(program, entry.model, entry.base_url, entry.key if entry.base_url else "", entry.extra, tools, login)


# --------------------------------------------------------------------------------------------- the file


def entries() -> dict[str, Entry]:
    """The sections of the user's file, checked; none where there is no file."""
    path = settings.agents_file()
    return {} if path is None else parse(_read(path), str(path))


def parse(text: str, where: str) -> dict[str, Entry]:
    """UsageError says which section and field, and never what may be a key."""
    try:
        sections = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"is not TOML: {error}", where=where) from None
    return {name: _entry(name, given, f"{where}: [{name}]") for name, given in sections.items()}


def _entry(name: str, given: object, where: str) -> Entry:
    if not isinstance(given, dict):
        raise UsageError("stands outside of a section", where=where, next_step=f"[NAME]   {name} = ...")
    if not re.fullmatch(r"[a-z][a-z0-9_-]{0,39}", name) or name in TAKEN:
        said = "is taken" if name in TAKEN else "is no name: small letters, digits, - and _, at most 40"
        raise UsageError(said, where=where, next_step="another name")
    for field in given:
        if field not in Entry.__struct_fields__:
            known = ", ".join(Entry.__struct_fields__)
            raise UsageError(f"has no field `{field}`.{nearest(field, Entry.__struct_fields__)}", where=where, next_step=f"fields: {known}")
    try:
        entry = msgspec.convert(given, Entry)
    except msgspec.ValidationError as error:
        raise UsageError(str(error), where=where) from None
    for refused in (_kind_refused(name, entry), _url_refused(entry.base_url), _key_refused(name, entry), _rest_refused(entry)):
        if refused:
            raise UsageError(refused[0], where=where, next_step=refused[1])
    try:
        check_names(entry.environment.values())
        _spec(name, entry)
    except UsageError as error:
        raise UsageError(error.what, where=where, next_step=error.next_step) from None
    return entry


Refused = tuple[str, str] | None


def _kind_refused(name: str, entry: Entry) -> Refused:
    kinds = (*NAMES, ANY)
    kind = _kind(name, entry)
    if kind not in kinds:
        return f"kind `{kind}` is not known.{nearest(kind, kinds)}", f"kinds: {', '.join(kinds)}"
    if name in NAMES and kind != name:
        return f"kind `{kind}` under the name of another CLI", f"another name than {name}"
    if kind == ANY and not entry.argv.strip():
        return "says neither which CLI it is nor its command", 'kind = "codex"   or   argv = "my-agent {prompt}"'
    if kind != ANY and entry.argv:
        return f"`argv` is for another command; {kind} has its own", "extra = [...]   adds words to it"
    return None


def _url_refused(url: str) -> Refused:
    try:
        parts = urlsplit(url)
        plain = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.username and not parts.query
    except ValueError:
        plain = False
    if url and not plain:
        return "`base_url` must be http:// or https:// and a host, without user, password or query", "keys come from the environment"
    return None


def _key_refused(name: str, entry: Entry) -> Refused:
    if entry.key and not re.fullmatch(r"[A-Z_][A-Z0-9_]*", entry.key):
        return "`key` is the name of a variable in capitals, never the key itself", 'key = "MY_AGENT_KEY"'
    if entry.key and not entry.base_url and _kind(name, entry) != ANY:
        return "`key` goes with `base_url`; for its own server the CLI takes its usual variables", "docs/agents.md lists them"
    return None


def _rest_refused(entry: Entry) -> Refused:
    for field, folders in (("tools", entry.tools), ("login", (entry.login,) if entry.login else ())):
        if any(not Path(folder).expanduser().is_absolute() for folder in folders):
            return f"`{field}` must be absolute", f'{field} = "/..."   or   "~/..."'
    if bad := next((v for v in entry.environment if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", v)), None):
        return f"`{bad}` is no name of a variable", ""
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"cannot be read: {type(error).__name__}", where=str(path), next_step="KEEPFAST_AGENTS names a text file"
        ) from None


def _file_name() -> str:
    return str(settings.agents_file() or "agents.toml, see docs/agents.md")
