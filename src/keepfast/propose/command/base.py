"""What a coding-agent CLI is, as data: its command line, environment, settings, and how it is listened to.

Owns the records and the templates. One small file for each CLI fills them in. Must not know processes, files, or how a turn is judged.

A template is words with `{name}` in them. Names: prompt, workspace, home, model, base_url, key, session, dollars, turns, tools, caged,
login, api_key, brief. A group of words is left out when a name in it, or in its `when`, has no value; `!name` in `when` asks for no value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from keepfast.errors import UsageError, nearest
from keepfast.propose.command.notes import Event, Notes

NAMES = (
    "prompt", "workspace", "home", "model", "base_url", "key", "session", "dollars", "turns", "tools", "caged", "login", "api_key", "brief",
)  # fmt: skip
KEY = "KEEPFAST_AGENT_KEY"  # the variable by which a CLI gets the key for a `base_url`, where its settings may name one

Values = Mapping[str, str]
Settings = Callable[[Values], tuple[tuple[str, str], ...]]


class Words(Struct, frozen=True):
    """Words of a command line that belong together."""

    words: tuple[str, ...]
    when: tuple[str, ...] = ()


class Variable(Struct, frozen=True):
    """A variable of the environment."""

    name: str
    text: str
    when: tuple[str, ...] = ()


class Options(Struct, frozen=True):
    """What a user may say about one agent.

    program    the CLI's path, or its name on PATH; "": its usual name
    model      as the CLI writes it
    base_url   another server that speaks what the CLI speaks: a gateway, a local model, a stub. The CLI's own keys are not sent there
    key        the variable of the environment that holds the key for `base_url`
    extra      further words for its command line
    tools      further folders that it may read: compilers, headers
    login      a home folder whose login of this CLI is copied into the agent's own home; "": keys of the environment only
    """

    program: str = ""
    model: str = ""
    base_url: str = ""
    key: str = ""
    extra: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    login: str = ""


class Spec(Struct, frozen=True):
    """One CLI.

    argv          its command line behind the program
    resume        the same for going on with a session, where that is another one
    hear          takes one event of its output and writes what it says into the notes; None: its output is plain text
    mutter        the same for a line of its error output
    keys          variables of the environment that it takes its keys from
    key_variable  the variable in which it wants the key for a `base_url`
    settings      files that it needs in its home
    logins        files below a user's home that hold a login
    running_total its tokens are those of the whole conversation, not of the turn
    last_event    it ends a whole turn with an event of its own, so that an output without one was cut off
    """

    name: str
    program: str
    argv: tuple[Words, ...]
    hear: Callable[[Event, Notes], None] | None = None
    mutter: Callable[[str, Notes], None] | None = None
    resume: tuple[Words, ...] = ()
    environment: tuple[Variable, ...] = ()
    keys: tuple[str, ...] = ()
    key_variable: str = KEY
    settings: Settings | None = None
    logins: tuple[str, ...] = ()
    running_total: bool = False
    last_event: bool = True


def w(*words: str, when: str = "") -> Words:
    """A group; `when` is written with spaces between its names."""
    return Words(words, tuple(when.split()))


def command_line(spec: Spec, values: Values) -> list[str]:
    """The words behind the program."""
    groups = spec.resume if spec.resume and values.get("session") else spec.argv
    return [filled(word, values) for group in groups if _wanted((*group.words,), group.when, values) for word in group.words]


def variables(spec: Spec, values: Values) -> dict[str, str]:
    wanted = [v for v in spec.environment if _wanted((v.text,), v.when, values)]
    return {v.name: filled(v.text, values) for v in wanted}


def filled(text: str, values: Values) -> str:
    """`text` with its names replaced, once: a value that looks like a name stays as it is."""
    return re.sub(r"\{([a-z_]+)\}", lambda m: values.get(m[1], "") if m[1] in NAMES else m[0], text)


def names_in(texts: Iterable[str]) -> list[str]:
    return [name for text in texts for name in re.findall(r"\{([a-z_]+)\}", text)]


def check_names(texts: Iterable[str]) -> None:
    """UsageError for a name that no template can have."""
    for name in names_in(texts):
        if name not in NAMES:
            raise UsageError(
                f"`{{{name}}}` in the command of an agent is not known.{nearest(name, NAMES)}",
                next_step=f"known are {', '.join('{' + n + '}' for n in NAMES)}",
            )


def _wanted(texts: tuple[str, ...], when: tuple[str, ...], values: Values) -> bool:
    asked = (*when, *(name for name in names_in(texts) if name in NAMES))
    return all(bool(values.get(name.lstrip("!"))) is not name.startswith("!") for name in asked)
