"""docs/tasks.md against the code that it describes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from keepfast import dtypes, expr
from keepfast.model import Task
from keepfast.task import abi, example, onboard, tunables
from keepfast.task.file import parse
from keepfast.task.load import load
from keepfast.task.schema import TEXTS
from keepfast.task.signature import parse as parse_signature

TEXT = (Path(__file__).parents[2] / "docs" / "tasks.md").read_text(encoding="utf-8")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def rows(title: str) -> list[list[str]]:
    section = re.split(r"^## ", TEXT.split(f"\n## {title}\n", 1)[1], flags=re.MULTILINE)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def written(tmp_path: Path, task_toml: str, reference: str = example.REFERENCE) -> Task:
    for name, content in {**dict(example.FILES), "task.toml": task_toml, "reference.py": reference}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    return load(tmp_path)


def test_the_keys_are_the_codes() -> None:
    assert sorted(row[0].strip("`") for row in rows("task.toml")) == sorted(TEXTS)


def test_defaults_are_the_codes() -> None:
    text = 'schema = 1\nsignature = "f(Tensor x) -> Tensor"\ncase = [{}]\narguments = { x = {} }\n'
    keys = parse(text).keys
    said = {row[0].strip("`"): row[2] for row in rows("task.toml") if row[0].split(".")[0].strip("`") != "case"}
    places = {name: name.split(".") for name, default in said.items() if default.startswith(("`", "1", "2"))}
    assert len(places) >= 17
    for name, path in places.items():
        value: object = keys
        for part in path:
            value = value["x"] if isinstance(value, dict) else value
            value = getattr(value, part)
        assert said[name].strip("`") == json.dumps(value)


def test_the_example_task_loads(tmp_path: Path) -> None:
    task = written(tmp_path, blocks("toml")[0])
    assert [case.name for case in task.cases] == ["decode", "m7_n33"]
    assert task.argument("weight").role == "weight"


@pytest.mark.parametrize("text", "".join(blocks("signature")).strip().split("\n"))
def test_the_signatures_parse(text: str) -> None:
    assert parse_signature(text).results


def test_element_types_are_the_codes() -> None:
    assert rows("Element types") == [[f"`{d.name}`", f"`{d.ctype}`", "yes" if d.numpy else "no"] for d in dtypes.TABLE]


def test_the_prototype_is_the_codes() -> None:
    comment, prototype = blocks("c")[0].strip().split("\n")
    found = re.fullmatch(r"/\* (.*), axes m and n \*/", comment)
    assert found
    layout = abi.layout_of(parse_signature(found[1]), ("m", "n"))
    types = {"x": "float32", "mask": "bool", "values": "float32", "indices": "int64"}
    assert f"{abi.declaration(layout, 'kernel', types)};" == prototype


def test_reference_and_baseline_are_those_of_the_example() -> None:
    for block in blocks("python"):
        compile(block, "docs/tasks.md", "exec")
    assert "np.sqrt(np.sum(x * x, axis=1))" in blocks("python")[0]
    assert "np.sqrt(np.sum(x * x, axis=1))" in example.REFERENCE
    assert blocks("python")[1].split('"""')[2] == example.BASELINE.split('"""')[4]


def test_tunables_parse() -> None:
    space = tunables.parse(blocks("toml tunables")[0])
    assert space.choices("BLOCK_N") == (16, 32, 64, 128, 256)
    assert "#define BLOCK_M 32" in tunables.header(space)
    assert {row[0].strip("`") for row in rows("tunables.toml")} == {"choices", "range", "log2", "value", "constraints"}


def test_limits_of_expressions() -> None:
    section = TEXT.split("## Expressions")[1].split("\n## ")[0]
    for number in (expr.MAX_LENGTH, expr.MAX_DEPTH, expr.MAX_EXPONENT):
        assert re.search(rf"\b{number}\b", section)
    for text in ("min(1, 2)", "max(1, 2)", "ceil(1)", "log2(1)"):
        assert re.search(re.escape(text.split("(", maxsplit=1)[0]) + r"\(", section)
        expr.parse(text, ())


def test_onboarding_options_are_the_codes() -> None:
    section = TEXT.split("## A function that exists")[1].split("\n## ")[0]
    named = {"from": "source", "case": "cases", "shape": "shapes", "dtype": "dtypes", "flag": "flags", "lib": "libs", "source": "sources"}
    options = set(re.findall(r"--(\w+)", section))
    assert {named.get(o, o) for o in options} == set(onboard.Origin.__struct_fields__)


@pytest.mark.parametrize("anchor", ["#adapters", "#frozen-sources", "#element-types", "#expressions", "#the-signature", "#lint"])
def test_anchors_that_are_pointed_at(anchor: str) -> None:
    titles = re.findall(r"^#+ (.*)$", TEXT, re.MULTILINE)
    assert anchor[1:] in [t.lower().replace(" ", "-") for t in titles]
