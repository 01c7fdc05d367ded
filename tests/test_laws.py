"""Laws of the source: what importing costs, how large things may be, who reads the environment, who may catch everything."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import keepfast

PACKAGE = Path(keepfast.__file__).parent
FILES = sorted(p for p in PACKAGE.rglob("*.py") if "demo" not in p.relative_to(PACKAGE).parts)
LINES_OF_A_FUNCTION, LINES_OF_A_FILE, PARAMETERS = 80, 450, 5
MAY_BE_LONGER = {"model.py": 600}  # the records that every room shares, in one place to be read as one

# Commands: every option is a parameter, as typer reads them from the signature.
MAY_TAKE_MORE = {
    ("cli/redteam.py", "command"),
    ("cli/certify.py", "command"),
    ("cli/export.py", "command"),
    ("cli/e2e.py", "command"),
    ("cli/capture.py", "command"),
    ("cli/run.py", "command"),
    ("cli/context.py", "command"),
    ("cli/init.py", "command"),
    ("cli/budget.py", "higher"),
}
# What a slot replaces in a model: every argument of the slot is a parameter.
MAY_TAKE_MORE |= {("engine/torch_reference.py", name) for name in ("attention_decode", "attention_prefill", "rotary_cache")}

# Who may catch every exception, and the words near it that say why.
MAY_CATCH_ALL = {
    "propose/flights.py": "raised again in the run's own thread",
    "engine/torch_entry.py": "the candidate's code may raise anything",
    "engine/torch_graph.py": "a kernel may raise anything",
    "engine/torch_main.py": "a library may raise anything",
    "engine/torch_slots.py": "a kernel may raise anything",
    "judge/oracle.py": "the human's code may raise anything",
    "oracle/serve.py": "the human's code may raise anything",
    "redteam/attempt.py": "a bug of ours is this entry's line",
    "redteam/gpu.py": "the next entry gets a judge of its own",
    "oracle/shapes.py": "the human's code may raise anything",
    "harvest/injected/sitecustomize.py": "the hook must not break the program",
    "harvest/injected/keepfast_hook/tally.py": "the hook must not break the program",
}


def name(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield name(path), node


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    a = node.args
    found = [x.arg for x in (*a.posonlyargs, *a.args, *a.kwonlyargs)]
    found += [x.arg for x in (a.vararg, a.kwarg) if x is not None]
    return [x for x in found if x not in ("self", "cls")]


def test_the_package_was_found() -> None:
    assert len(FILES) > 80
    assert {"loop.py", "judge/judge.py", "cli/main.py"} <= {name(p) for p in FILES}


def test_functions_are_short() -> None:
    long = [(file, f.name, f.end_lineno - f.lineno + 1) for file, f in functions() if f.end_lineno is not None]
    assert [x for x in long if x[2] > LINES_OF_A_FUNCTION] == []


def test_files_are_short() -> None:
    lengths = {name(p): len(p.read_text(encoding="utf-8").splitlines()) for p in FILES}
    assert {n: size for n, size in lengths.items() if size > MAY_BE_LONGER.get(n, LINES_OF_A_FILE)} == {}


def test_functions_take_few_parameters() -> None:
    many = {(file, f.name) for file, f in functions() if len(parameters(f)) > PARAMETERS}
    assert many - MAY_TAKE_MORE == set()
    assert MAY_TAKE_MORE - many == set(), "no longer needed"


def test_the_environment_is_read_in_one_file() -> None:
    def reads(tree: ast.Module) -> bool:
        attributes = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
        imported = {a.name for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module == "os" for a in n.names}
        return bool((attributes | imported) & {"environ", "environb", "getenv", "putenv"})

    assert [name(p) for p in FILES if reads(ast.parse(p.read_text(encoding="utf-8")))] == ["settings.py"]


def broad(tree: ast.Module) -> Iterator[ast.ExceptHandler]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler):
            caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
            if any(c is None or (isinstance(c, ast.Name) and c.id in ("Exception", "BaseException")) for c in caught):
                yield node


def test_nobody_catches_everything_but_those_who_say_why() -> None:
    found = {}
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        for handler in broad(ast.parse(text)):
            found[name(path)] = "\n".join(text.splitlines()[handler.lineno - 4 : handler.lineno])
    assert found.keys() == MAY_CATCH_ALL.keys()
    assert [n for n, said in MAY_CATCH_ALL.items() if said not in found[n]] == []


def test_nothing_is_left_to_do_later() -> None:
    words = ("TODO", "FIXME", "XXX")
    assert [(name(p), w) for p in FILES for w in words if w in p.read_text(encoding="utf-8")] == []


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("keepfast", ("numpy", "typer", "optuna", "sqlite3", "rich", "jinja2", "msgspec")),
        (
            "keepfast.cli.main",
            ("numpy", "optuna", "sqlite3", "rich.console", "jinja2", "keepfast.judge", "keepfast.ledger", "keepfast.loop"),
        ),
        ("keepfast.model", ("numpy", "typer")),
        ("keepfast.loop", ("numpy", "typer", "optuna", "keepfast.judge", "keepfast.cli")),
        ("keepfast.ledger", ("numpy", "keepfast.judge", "keepfast.repo")),
        ("keepfast.report.html", ("numpy", "typer", "keepfast.judge")),
    ],
)
def test_importing_is_light(module: str, unwanted: tuple[str, ...]) -> None:
    code = f"import sys, {module}; print([m for m in {unwanted!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
