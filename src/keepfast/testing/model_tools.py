"""Which of the tools that a CLI offers does what the script says, and with which arguments. Must not know HTTP or a wire format.

It reads the schemas in the request rather than the CLI's name or version: an argument is found by the names that CLIs use for it.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import Struct

from keepfast.testing.model_script import AskPermission, Edit, MalformedToolCall, Refuse, Reply, Run, Say, ToolCall


class Property(Struct, frozen=True):
    type: Any = ""
    items: Schema | None = None


class Schema(Struct, frozen=True):
    """What of a JSON schema matters here."""

    properties: dict[str, Property] = {}
    required: tuple[str, ...] = ()


class Offer(Struct, frozen=True):
    """A tool in a request. `free`: it takes text instead of JSON."""

    name: str
    schema: Schema = Schema()
    free: bool = False


class Call(Struct, frozen=True):
    """A call of a tool. `arguments`: JSON, or whatever the script says; for a `free` tool its text."""

    name: str
    arguments: str
    free: bool = False


class Answer(Struct, frozen=True):
    """What is to be put in a wire format."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    refused: bool = False


class NoTool(Exception):
    """The request offers no tool that can do what the script says."""


PATCH, REPLACE, WRITE = ("apply_patch",), ("Edit", "edit", "replace", "str_replace"), ("Write", "write", "write_file")
SHELL = ("Bash", "bash", "exec_command", "shell_command", "shell", "run_shell_command")
ASK = ("AskUserQuestion", "ask_user", "question", "request_user_input")
READ_FIRST = {"Edit": "Read"}  # Claude Code refuses to edit a file that it has not read

MEANING = {
    "path": ("file_path", "filePath", "path", "absolute_path"),
    "old": ("old_string", "oldString", "oldText", "old_str"),
    "new": ("new_string", "newString", "newText", "new_str"),
    "content": ("content",),
    "command": ("command", "cmd"),
    "patch": ("input", "patch"),
    "why": ("description", "instruction", "explanation", "justification"),
}


def answer(reply: Reply, offers: tuple[Offer, ...]) -> Answer:
    """What `reply` is for a request with these tools. Raises NoTool."""
    match reply:
        case Say(text=text):
            return Answer(text)
        case Refuse(text=text):
            return Answer(text, refused=True)
        case ToolCall(name=name, arguments=arguments):
            return Answer("", (Call(name, arguments, _free(name, offers)),))
        case MalformedToolCall(name=name, arguments=arguments):
            chosen = name or _first((*PATCH, *REPLACE, *SHELL), offers).name
            return Answer("", (Call(chosen, arguments, _free(chosen, offers)),))
        case Run(command=command):
            return Answer("", (_fill(_first(SHELL, offers), {"command": command, "why": "Runs a command"}),))
        case Edit():
            return Answer("", _edit(reply, offers))
        case AskPermission(text=text):
            return _ask(text, offers)
    raise NoTool(f"{type(reply).__name__} is not an answer that holds words or a call")


def _edit(edit: Edit, offers: tuple[Offer, ...]) -> tuple[Call, ...]:
    tool = _find((*(REPLACE if edit.old else WRITE), *PATCH), offers)
    if tool is None:
        return answer(Run(sed(edit)), offers).calls
    meant = {"path": edit.path, "old": edit.old, "new": edit.new, "content": edit.new, "patch": patch(edit), "why": "Edits a file"}
    read = _find((READ_FIRST.get(tool.name, ""),), offers)
    return (*((_fill(read, meant),) if read and edit.old else ()), _fill(tool, meant))


def _ask(text: str, offers: tuple[Offer, ...]) -> Answer:
    tool = _find(ASK, offers)
    if tool is None:
        return Answer(text)
    options = [{"label": "Yes", "description": "Go on"}, {"label": "No", "description": "Stop"}]
    question = {"question": text, "header": "Permission", "options": options, "multiSelect": False, "id": "permission", "type": "choice"}
    return Answer("", (Call(tool.name, _json({"questions": [question]})),))


def _find(names: tuple[str, ...], offers: tuple[Offer, ...]) -> Offer | None:
    by_name = {o.name: o for o in offers}
    return next((by_name[n] for n in names if n in by_name), None)


def _first(names: tuple[str, ...], offers: tuple[Offer, ...]) -> Offer:
    found = _find(names, offers)
    if found is None:
        raise NoTool(f"none of {', '.join(names)} is among the tools offered: {', '.join(o.name for o in offers) or 'none'}")
    return found


def _free(name: str, offers: tuple[Offer, ...]) -> bool:
    return any(o.free for o in offers if o.name == name)


def _fill(tool: Offer, meant: dict[str, str]) -> Call:
    """A call of `tool` with the arguments whose meaning is known. Explanations only where they must be: Codex asks for more with them."""
    if tool.free:
        return Call(tool.name, meant["patch"], free=True)
    known = {name: value for meaning, value in meant.items() for name in MEANING[meaning]}
    arguments: dict[str, object] = {}
    for name, about in tool.schema.properties.items():
        if name in MEANING["why"] and name not in tool.schema.required:
            continue
        if name in known:
            arguments[name] = ["bash", "-c", known[name]] if about.type == "array" else known[name]
        elif name == "edits" and about.items is not None:
            arguments[name] = [{n: known[n] for n in about.items.properties if n in known}]
    missing = [name for name in tool.schema.required if name not in arguments]
    if missing:
        raise NoTool(f"the tool {tool.name} needs {', '.join(missing)}, which has no known meaning")
    return Call(tool.name, _json(arguments))


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def patch(edit: Edit) -> str:
    """The edit in the format of Codex's `apply_patch`, which replaces whole lines."""
    new = [f"+{line}" for line in edit.new.splitlines()]
    if not edit.old:
        return "\n".join(["*** Begin Patch", f"*** Add File: {edit.path}", *new, "*** End Patch\n"])
    old = [f"-{line}" for line in edit.old.splitlines()]
    return "\n".join(["*** Begin Patch", f"*** Update File: {edit.path}", "@@", *old, *new, "*** End Patch\n"])


def sed(edit: Edit) -> str:
    """The edit as a shell command, for a CLI that edits through its shell alone; it fails where `old` is not in the file."""
    path = _quoted(edit.path)
    if not edit.old:
        return f"printf %s {_quoted(edit.new)} > {path}"
    pattern = re.sub(r"([\\.*\[\]^$/])", r"\\\1", edit.old).replace("\n", "\\n")
    wanted = re.sub(r"([\\&/])", r"\\\1", edit.new).replace("\n", "\\n")
    return f"sed -z {_quoted(f'/{pattern}/!q1')} {path} > /dev/null && sed -z -i {_quoted(f's/{pattern}/{wanted}/')} {path}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
