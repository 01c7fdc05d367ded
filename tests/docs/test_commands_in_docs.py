"""Every `keepfast ...` line in the documents is a command that exists, with options that it takes; the README's first two are scripts."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
import typer

from keepfast.cli.main import build

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "examples").rglob("README.md"))]


def commands(text: str) -> list[str]:
    """Indented or fenced lines that begin with keepfast, continued lines joined, comments and alternatives cut."""
    joined = re.sub(r"\\\n\s*", " ", text)
    lines = [line.strip().removeprefix("$ ") for line in joined.splitlines() if re.match(r"^(?: {4,}|\$ |keepfast )", line)]
    return [part.strip() for line in lines if line.startswith("keepfast ") for part in line.split("|")[:1]]


FOUND = [(path.name, line) for path in DOCUMENTS for line in commands(path.read_text())]


@pytest.mark.parametrize(("document", "line"), FOUND)
def test_a_command_in_a_document_exists(document: str, line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    words = words[: next((i for i, word in enumerate(words) if word in ("->", "&&", ";")), len(words))]
    command: click.Command = typer.main.get_command(build())
    while isinstance(command, click.Group) or hasattr(command, "commands"):
        name = words.pop(0)
        known = dict(command.commands)
        assert name in known, f"{document}: no command {name}"
        command = known[name]
    options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    for word in words:
        if word.startswith("--"):
            assert word.split("=")[0] in options | {"--help"}, f"{document}: {line}"


def test_the_documents_have_commands() -> None:
    assert len([line for name, line in FOUND if name == "README.md"]) >= 6


def test_the_readme_begins_with_two_scripts_that_exist() -> None:
    scripts = re.findall(r"^ {4}bash (scripts/\w+)", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert scripts[:2] == ["scripts/demo", "scripts/test"]
    for script in scripts:
        assert (ROOT / script).stat().st_mode & 0o111


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_links_between_documents_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
        assert (path.parent / target).exists(), f"{path.name} links to {target}"
