"""Coding-agent CLIs as agents: each by name, or any command by a template. Nothing of a CLI is loaded before it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from keepfast.propose.agent import Agent
    from keepfast.propose.command.agent import Setup
    from keepfast.propose.command.base import Spec

NAMES = ("claude", "codex", "opencode", "gemini", "pi")


def names() -> tuple[str, ...]:
    """The CLIs, and what the user's file of agents adds."""
    from keepfast.propose.command import given

    return given.names()


def named(name: str) -> Spec:
    """What is started under that name. UsageError, with the nearest, for one that is not known."""
    from keepfast.propose.command import given

    return given.spec(name)


def hire(name: str, setup: Setup) -> Agent:
    """The agent of that name, with what the user's file says of it."""
    from keepfast.propose.command import given

    return given.hire(name, setup)


def built_in(name: str) -> Spec:
    """One of NAMES."""
    from importlib import import_module

    found: Spec = import_module(f"keepfast.propose.command.{name}").SPEC
    return found
