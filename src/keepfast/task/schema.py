"""A JSON schema of task.toml, for editors; and one sentence on every key, which the documents are tested against.

Must not validate: `file` and `checks` do.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from keepfast import dtypes
from keepfast.task.checks import LANGUAGES, ROLES
from keepfast.task.file import SCHEMA, SECTIONS, ArgumentKeys, Keys

TEXTS: dict[str, str] = {
    "schema": "version of this format",
    "title": "what people see; the folder's name when absent",
    "signature": "the calling contract: a torch operator schema",
    "languages": "languages a candidate may be written in",
    "entry": "FILE:FUNCTION that is called, FILE relative to root",
    "root": "folder that entry, editable and [build] are relative to; relative to the task folder, may go up inside the repository",
    "editable": "globs, relative to root, of the files that may be changed",
    "axes": "names of the sizes; every case binds each, the kernel gets each as int64_t after the outputs",
    "threads": "cores a kernel may use",
    "oracle": "reference: reference.py says what is right; frozen: the sources in frozen/ do (same as before, not proven right)",
    "prepare": "step: a `prepare` beside the entry runs before each call, inside the clock (GPU judge only)",
    "case": "one set of axis values",
    "case.name": "how the case is called; made from its axes when absent",
    "case.weight": "share in the overall time, normalised over the timed cases",
    "case.use": "both; time: timed, no part of the wider checks; correct: checked, no part of the gain",
    "arguments": "what is to be said about single arguments and outputs",
    "arguments.role": "input, weight, scratch, index or meta; the last three need a GPU judge",
    "arguments.refresh": "how new contents are made: element mixes two draws per element, whole uses a draw as it is",
    "arguments.dtype": "element type, checked against what inputs() and reference() return",
    "goal": "when to stop: all that are given must hold",
    "goal.speedup": "times faster than the opponent named by `over`",
    "goal.over": "baseline: the fastest baseline that passes; start: the kernel the run began with",
    "goal.limit": "share of the physical limit, for example 0.9",
    "budget": "when to stop without the goal",
    "budget.experiments": "experiments at most",
    "budget.hours": "hours at most",
    "budget.dollars": "money for agents at most",
    "budget.dry": "experiments in a row without a keep at most",
    "rules": "what a candidate may use",
    "rules.cuda_graphs": "allowed, required or forbidden (GPU)",
    "rules.library_kernels": "allowed or forbidden",
    "limit": "least work of one call, as expressions over the axes: a case faster than this machine can do it is suspect",
    "limit.bytes": "bytes that must be moved",
    "limit.flops": "floating-point operations that must be done",
    "build": "how kernels are compiled, the same for all that are compared",
    "build.flags": "compiler flags",
    "build.libs": "libraries, after the sources, for example -lm",
    "build.sources": "further source files, relative to root",
    "build.include": "include folders, relative to root",
    "build.readable": "globs, relative to root, of further files the compiler may read (headers)",
    "tolerance": "how a result is compared",
    "tolerance.reduction": "terms summed for one element, an expression over the axes; the largest axis of the case when absent",
    "tolerance.scale": "widens the whole error budget; 1 is the default and what should be used",
}
_CHOICES: dict[str, tuple[str, ...]] = {
    "oracle": ("reference", "frozen"),
    "prepare": ("", "step"),
    "arguments.role": ROLES,
    "arguments.refresh": ("element", "whole"),
    "arguments.dtype": ("", *dtypes.names()),
    "goal.over": ("baseline", "start"),
    "rules.cuda_graphs": ("allowed", "required", "forbidden"),
    "rules.library_kernels": ("allowed", "forbidden"),
}


def json_schema() -> str:
    """The schema as JSON text (draft 2020-12)."""
    _, defs = msgspec.json.schema_components((Keys,), ref_template="#/$defs/{name}")
    tables: dict[str, Any] = {name: dict(definition) for name, definition in defs.items()}
    kinds: dict[str, type[msgspec.Struct]] = {"": Keys, "arguments": ArgumentKeys, **SECTIONS}
    for prefix, kind in kinds.items():
        tables[kind.__name__] = _described(tables[kind.__name__], prefix)
    top = tables.pop("Keys")
    top["properties"]["schema"]["const"] = SCHEMA
    top["properties"]["languages"]["items"]["enum"] = list(LANGUAGES)
    top["properties"]["case"] |= {"minItems": 1, "items": _case()}
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "keepfast task.toml"}
    return json.dumps(head | top | {"$defs": tables}, indent=2) + "\n"


def _described(table: dict[str, Any], prefix: str) -> dict[str, Any]:
    """The table without unknown keys, each key with its sentence and its choices."""
    properties = {}
    for key, value in table["properties"].items():
        path = f"{prefix}.{key}" if prefix else key
        choices = {"enum": list(_CHOICES[path])} if path in _CHOICES else {}
        properties[key] = {**value, **choices, "description": TEXTS[path]}
    kept = {key: value for key, value in table.items() if key not in ("title", "description")}
    return kept | {"properties": properties, "additionalProperties": False}


def _case() -> dict[str, Any]:
    kinds: dict[str, dict[str, Any]] = {
        "name": {"type": "string"},
        "weight": {"type": "number", "exclusiveMinimum": 0},
        "use": {"enum": ["time", "correct", "both"]},
    }
    properties = {key: {**kind, "description": TEXTS[f"case.{key}"]} for key, kind in kinds.items()}
    axis = {"type": "integer", "minimum": 1, "description": "value of an axis"}
    return {"type": "object", "properties": properties, "additionalProperties": axis}
