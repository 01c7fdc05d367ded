"""The JSON schema names every key that the loader takes, and no other."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec

from keepfast.task.file import SECTIONS, ArgumentKeys, Keys
from keepfast.task.schema import TEXTS, json_schema

DOC = Path(__file__).parents[2] / "docs" / "tasks.md"


def keys() -> set[str]:
    """Every key of task.toml, dotted."""
    found = {f.name for f in msgspec.structs.fields(Keys)} | {"case.name", "case.weight", "case.use"}
    for section, kind in {**SECTIONS, "arguments": ArgumentKeys}.items():
        found |= {f"{section}.{f.name}" for f in msgspec.structs.fields(kind)}
    return found


def test_every_key_has_a_sentence() -> None:
    assert set(TEXTS) == keys()


def test_every_key_is_in_the_schema_with_its_sentence() -> None:
    schema = json.loads(json_schema())
    described: dict[str, str] = {}

    def walk(table: dict[str, Any], prefix: str) -> None:
        assert table["additionalProperties"] is False or prefix == "case."
        for key, value in table["properties"].items():
            described[prefix + key] = value["description"]
            inner = value.get("$ref") or value.get("additionalProperties", {}).get("$ref")
            if inner:
                walk(schema["$defs"][inner.rsplit("/", 1)[1]], f"{prefix}{key}.")

    walk(schema, "")
    walk(schema["properties"]["case"]["items"], "case.")
    assert described == TEXTS
    assert schema["required"] == ["schema", "signature", "case"]


def test_choices_are_closed() -> None:
    schema = json.loads(json_schema())
    assert schema["$defs"]["Goal"]["properties"]["over"]["enum"] == ["baseline", "start"]
    assert "bfloat16" in schema["$defs"]["ArgumentKeys"]["properties"]["dtype"]["enum"]
    pattern = schema["$defs"]["RuleKeys"]["properties"]["library_kernels"]["pattern"]
    assert [t for t in ("allowed", "forbidden", "0.2", ".5", "0", "1.5", "some") if re.search(pattern, t)] == [
        "allowed", "forbidden", "0.2", ".5", "0",
    ]  # fmt: skip
    assert schema["properties"]["case"]["items"]["additionalProperties"]["type"] == "integer"


def test_every_key_is_in_the_document() -> None:
    text = DOC.read_text(encoding="utf-8")
    rows = {line.split("`")[1] for line in text.split("\n") if line.startswith("| `")}
    assert keys() <= rows
