"""Every command has help with a real example and a place in the reference; starting is light."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import keepfast as package
from keepfast.cli.main import build
from tests.cli.conftest import Call

SOURCE = Path(package.__file__).parents[1]
ROOT = Path(__file__).parents[2]
OWED = (  # the commands that were promised
    *("init", "check", "run", "status", "stop", "log", "show", "report", "idea", "budget", "clear"),
    *("finalize", "calibrate", "doctor", "gc", "schema", "demo"),
)


def leaves() -> list[tuple[tuple[str, ...], Any]]:
    found: list[tuple[tuple[str, ...], Any]] = []
    for name, command in get_command(build()).commands.items():  # type: ignore[attr-defined]
        below = getattr(command, "commands", None)
        found += [((name, n), c) for n, c in below.items()] if below else [((name,), command)]
    return found


def python(code: str, *args: str) -> str:
    env = os.environ | {"PYTHONPATH": str(SOURCE)}
    return subprocess.run((sys.executable, "-c", code, *args), env=env, check=True, capture_output=True, text=True).stdout


def test_every_command_is_there(keepfast: Call) -> None:
    said = keepfast("--help")
    assert said.code == 0
    listed = said.out.split("Commands:")[1]
    assert [name for name in OWED if f"\n  {name} " not in listed] == []
    assert "..." not in listed, "a short help is cut"


@pytest.mark.parametrize("words", [name for name, _ in leaves()])
def test_help_has_one_real_example(keepfast: Call, words: tuple[str, ...]) -> None:
    said = keepfast(*words, "--help")
    assert said.code == 0
    example = said.out.split("Example:")[1].strip()
    assert example.startswith(f"keepfast {' '.join(words)}") or words[0] in ("idea", "budget")
    assert said.out.count("Example:") == 1
    assert all(option.help for option in dict(leaves())[words].params if option.name != "help")


@pytest.mark.parametrize("words", [name for name, _ in leaves()])
def test_an_example_is_a_command_that_parses(words: tuple[str, ...]) -> None:
    import shlex

    example = dict(leaves())[words].epilog.split("Example:")[1].strip()
    typed = shlex.split(example.split(" > ")[0])[1:]
    context = get_command(build()).make_context("keepfast", typed, resilient_parsing=False)
    command, below = get_command(build()), context
    while typed and typed[0] in getattr(command, "commands", {}):
        command, typed = command.commands[typed[0]], typed[1:]
        below = command.make_context("x", list(typed), parent=below)
    assert below.command is command


def test_a_command_that_prints_results_takes_json() -> None:
    without = [" ".join(words) for words, c in leaves() if "--json" not in [o for p in c.params for o in p.opts]]
    assert without == ["attach", "mcp", "schema"]  # a view, a protocol, and what is JSON already


def test_help_imports_nothing_heavy() -> None:
    code = "import sys\nfrom keepfast.cli.main import main\ntry: main(['--help'])\nexcept SystemExit: pass\nprint(*sys.modules)"
    loaded = set(python(code).splitlines()[-1].split())
    assert not loaded & {"numpy", "optuna", "jinja2", "rich", "rich.live", "sqlite3", "httpx", "keepfast.loop", "keepfast.ledger"}


def test_importing_the_package_imports_nothing_else_of_it() -> None:
    before = set(python("import sys; print(*sys.modules)").split())
    after = set(python("import sys; import keepfast; print(*sys.modules)").split())
    assert after - before == {"keepfast"}


def test_version(keepfast: Call) -> None:
    assert keepfast("--version").out == f"keepfast {package.__version__}\n"


def test_the_reference_is_up_to_date() -> None:
    script = ROOT / "scripts" / "docs_cli.py"
    if not script.exists():
        pytest.skip("not in a checkout")
    env = os.environ | {"PYTHONPATH": str(SOURCE)}
    said = subprocess.run((sys.executable, str(script), "--check"), env=env, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr


def test_the_reference_names_every_option() -> None:
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    for words, command in leaves():
        section = text.split(f"## keepfast {' '.join(words)}\n")[1].split("\n## ")[0]
        assert [o for p in command.params for o in p.opts if p.param_type_name == "option" and o not in section] == []


def test_a_terminal_without_the_characters_gets_their_codes() -> None:
    env = os.environ | {"PYTHONPATH": str(SOURCE), "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    code = "from keepfast.cli.main import main; import sys; main(['show', 'ünknown'])"
    said = subprocess.run((sys.executable, "-c", code), env=env, capture_output=True, text=True, check=False)
    assert said.returncode == 2
    assert "Traceback" not in said.stderr
