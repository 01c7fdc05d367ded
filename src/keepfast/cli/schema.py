"""`keepfast schema`: the JSON schema of task.toml."""

from __future__ import annotations

EXAMPLE = "keepfast schema > task.schema.json"


def command() -> None:
    """Print the JSON schema of task.toml, for editors and other programs."""
    from keepfast.cli.out import say
    from keepfast.task.schema import json_schema

    say([json_schema().rstrip("\n")])
