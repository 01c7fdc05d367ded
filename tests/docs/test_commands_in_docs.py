"""Every `keepfast ...` in the documents and in what errors advise is a command that exists, with options that it takes; the README's
first two are scripts."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
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
    found = [part.strip() for line in lines if line.startswith("keepfast ") for part in line.split("|")[:1]]
    return found + [
        " ".join(span.split()) for span in re.findall(r"`(keepfast [a-z][^`]*)`", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S))
    ]


def advice() -> Iterator[tuple[str, str]]:
    """The next steps that errors name, cut where the next command begins; what is filled in is WORD."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "next_step":
                parts = (p.value if isinstance(p, ast.Constant) else "WORD" for p in getattr(node.value, "values", [node.value]))
                for said in re.findall(
                    r"keepfast (?!as )[a-z]+(?:(?!keepfast| -- )[^|;:`])*", "".join(p for p in parts if isinstance(p, str))
                ):
                    yield path.name, said


FOUND = [(path.name, line) for path in DOCUMENTS for line in commands(path.read_text())]
COMMANDS = typer.main.get_command(build())


@pytest.mark.parametrize(("document", "line"), FOUND)
def test_a_command_in_a_document_exists(document: str, line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    exists(words[: next((i for i, word in enumerate(words) if word in ("->", "&&", ";", "--")), len(words))], f"{document}: {line}")


@pytest.mark.parametrize(("file", "said"), sorted({*advice()}))
def test_a_command_that_an_error_advises_exists(file: str, said: str) -> None:
    exists(re.findall(r"[^\s,()]+", said)[1:], f"{file}: {said}")


def exists(words: list[str], where: str) -> None:
    command: click.Command = COMMANDS
    while isinstance(command, click.Group) or hasattr(command, "commands"):
        name = words.pop(0)
        known = dict(command.commands)
        assert name in known, where
        command = known[name]
    options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    for word in words:
        if word.startswith("--") and word != "--WORD":
            assert word.split("=")[0] in options | {"--help"}, where


def test_the_documents_have_commands() -> None:
    assert len([line for name, line in FOUND if name == "README.md"]) >= 6


def test_the_readme_begins_with_two_scripts_that_exist() -> None:
    scripts = re.findall(r"^ {4}bash (scripts/\w+)", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert scripts[:2] == ["scripts/demo", "scripts/test"]
    for script in scripts:
        assert (ROOT / script).stat().st_mode & 0o111


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_links_between_documents_lead_somewhere(path: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)  # `f[grid](x, out)` is no link
    for target in re.findall(r"\]\(([^)#:]+)\)", prose):
        assert (path.parent / target).exists(), f"{path.name} links to {target}"
