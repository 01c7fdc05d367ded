"""A JSON schema of task.toml, for editors; and one sentence on every key, which the documents are tested against.

Must not validate: `file` and `checks` do.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from keepfast import dtypes
from keepfast.engine.readers.base import NAMES as READERS
from keepfast.engine.slots import NAMES as SLOTS
from keepfast.model.task import FLOORS
from keepfast.task.checks import LANGUAGES, ROLES
from keepfast.task.engine import ATTENTION, COMPILE, DEVICES, DTYPES, KINDS, WEIGHTS
from keepfast.task.file import SCHEMA, SECTIONS, ArgumentKeys, Keys
from keepfast.task.rules import OWN_KERNELS

TEXTS: dict[str, str] = {
    "schema": "version of this format",
    "title": "what people see; the folder's name when absent",
    "signature": "the calling contract: a torch operator schema",
    "languages": "languages a candidate may be written in",
    "entry": "FILE:FUNCTION that is called, FILE relative to root",
    "root": "folder that entry, editable and [build] are relative to; relative to the task folder, may go up inside the repository",
    "editable": "globs, relative to root, of the files that may be changed",
    "axes": "names of the sizes; every case binds each, the kernel gets each as int64_t after the outputs",
    "threads": "cores a kernel may use (CPU)",
    "oracle": "reference: reference.py says what is right; frozen: the sources in frozen/ do (same as before, not proven right)",
    "prepare": "step: a `prepare` beside the entry is a part of every call, inside the clock; else it packs weights, outside of it (GPU)",
    "case": "one set of axis values",
    "case.name": "how the case is called; made from its axes when absent",
    "case.weight": "share in the overall time, normalised over the timed cases",
    "case.use": "both; time: timed, no part of the wider checks; correct: checked, no part of the gain",
    "arguments": "what is to be said about single arguments and outputs",
    "arguments.role": "input, weight, scratch, index or meta; the last three are for GPU tasks",
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
    "rules.cuda_graphs": "allowed, required or forbidden; a GPU task has required when absent and cannot forbid",
    "rules.library_kernels": "allowed, forbidden, or the largest share of GPU time that they may take, as text",
    "rules.languages": "GPU: kernels of no other language may be launched, nor kernels that no file defines; libraries aside",
    "rules.min_axis": "least size of an axis that some case must reach, else the task is refused",
    "rules.precision_floor": "what is computed below this fails in some case, else the task is refused; GPU: nor is it summed below it",
    "rules.no_state": "nothing that one call could leave for another: writable globals, static data, memory that lives on",
    "rules.prepare": "forbidden: no function `prepare` beside the entry; step: the same as `prepare` above",
    "limit": "least work of one call, as expressions over the axes: a case faster than this machine can do it is suspect",
    "limit.bytes": "bytes that must be moved",
    "limit.flops": "floating-point operations that must be done",
    "build": "how kernels are compiled, the same for all that are compared",
    "build.flags": "compiler flags; a GPU task has -O3 when absent, for nvcc",
    "build.libs": "libraries, after the sources, for example -lm",
    "build.sources": "further source files, relative to root",
    "build.include": "include folders, relative to root; in Python, folders that imports are looked for in",
    "build.readable": "globs, relative to root, of further files the compiler may read (headers)",
    "tolerance": "how a result is compared",
    "tolerance.reduction": "terms summed for one element, an expression over the axes; the largest axis of the case when absent",
    "tolerance.scale": "widens the whole error budget; 1 is the default and what should be used",
    "dispatch": "where the champion is held against its fallbacks, see docs/dispatch.md; no part of what makes two tasks the same",
    "dispatch.visible": "axes that are known when a call is dispatched; those that shapes of arguments tell when both lists are absent",
    "dispatch.hidden": "axes that are not: a region must win over all their values",
    "dispatch.grid": "values of an axis, or an expression over other axes; those of the timed cases and powers of two between when absent",
    "dispatch.fallbacks": "baselines that must be beaten, the first is stock; all of them when absent",
    "dispatch.rounds": "fresh rounds of each comparison",
    "engine": "the real engine that a keep is proven in, see docs/e2e.md; no part of what makes two tasks the same",
    "engine.kind": "transformers: a model of the library, measured by keepfast; command: a benchmark that prints JSON",
    "engine.model": "folder of a checkpoint, a name of a known shape, or a table in JSON; for a command only a name",
    "engine.slot": "where in the model the kernel goes",
    "engine.device": "cuda or cpu",
    "engine.dtype": "of the model's weights",
    "engine.phases": "decode, prefill or both",
    "engine.contexts": "tokens before a decode step, or of a prompt; every one with every batch is a cell",
    "engine.batches": "sequences at once",
    "engine.cells": "pairs of context and batch, in place of contexts and batches",
    "engine.rounds": "measurements of each arm in each cell",
    "engine.worst_cell": "share of time that any cell may lose",
    "engine.memory": "share of stock's peak memory that may be added",
    "engine.unshown": "what is accepted without evidence, at a lower class: graphs, engagement, outputs, memory",
    "engine.every": "keep, or a number: a run proves every so many keeps; 0: only `keepfast e2e` does",
    "engine.only": "for the slot linear: glob over names of modules",
    "engine.rows": "for the slot linear: rows of input at most, more are multiplied by the model's own product; 0: any",
    "engine.python": "interpreter that has torch and transformers; the one that runs keepfast when absent",
    "engine.argv": "the benchmark's command; {context}, {batch}, {out} and {kernel} are filled in",
    "engine.server": "a server that argv asks, started anew for every arm; {port} and {kernel} are filled in",
    "engine.ready": "path of the server that answers 200 once it serves",
    "engine.env": "environment of both arms, beside the caller's",
    "engine.patched_args": "further arguments of the patched arm",
    "engine.patched_env": "further environment of the patched arm; {kernel} is the folder with the kept files",
    "engine.reader": "format of the benchmark's JSON; found from its fields when absent",
    "engine.engaged": "words that the engine prints when the kernel runs, and never in stock",
    "engine.limit_seconds": "for one start of the command; for the whole account of transformers",
    "engine.attention": "attention of the library, in stock and where the kernel leaves it",
    "engine.compile": "torch.compile of every arm, inside the graph; not compiled when absent",
    "engine.steps": "measured in a row in each round",
    "engine.tokens": "positions of each sequence at which outputs are compared",
    "engine.float32": "whether stock is also run in float32 to know its rounding, which takes the weights' memory twice",
    "engine.weights": "random ones: sensitive, scaled so that every slot moves the logits, or as the library draws them",
    "engine.opponents": "further stock configurations, for example sdpa_gqa max-autotune: the kernel must not lose to the best in any cell",
}
_CHOICES: dict[str, tuple[str, ...]] = {
    "oracle": ("reference", "frozen"),
    "prepare": ("", "step"),
    "arguments.role": ROLES,
    "arguments.refresh": ("element", "whole"),
    "arguments.dtype": ("", *dtypes.names()),
    "goal.over": ("baseline", "start"),
    "engine.kind": KINDS,
    "engine.slot": ("", *SLOTS),
    "engine.device": DEVICES,
    "engine.dtype": DTYPES,
    "engine.reader": ("", *READERS),
    "engine.attention": ATTENTION,
    "engine.compile": ("", *COMPILE),
    "engine.weights": WEIGHTS,
    "rules.cuda_graphs": ("allowed", "required", "forbidden"),
    "rules.precision_floor": ("", *FLOORS),
    "rules.prepare": ("", "forbidden", "step"),
}
_PATTERNS = {"rules.library_kernels": "^(allowed|forbidden|0?\\.[0-9]+|0)$"}


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
    tables["RuleKeys"]["properties"]["languages"]["items"]["enum"] = list(OWN_KERNELS)
    tables["RuleKeys"]["properties"]["min_axis"]["additionalProperties"] |= {"minimum": 1}
    top["properties"]["case"] |= {"minItems": 1, "items": _case()}
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "keepfast task.toml"}
    return json.dumps(head | top | {"$defs": tables}, indent=2) + "\n"


def _described(table: dict[str, Any], prefix: str) -> dict[str, Any]:
    """The table without unknown keys, each key with its sentence and its choices."""
    properties = {}
    for key, value in table["properties"].items():
        path = f"{prefix}.{key}" if prefix else key
        choices: dict[str, Any] = {"enum": list(_CHOICES[path])} if path in _CHOICES else {}
        choices |= {"pattern": _PATTERNS[path]} if path in _PATTERNS else {}
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
