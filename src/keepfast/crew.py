"""The crew of a run: how agents are made and what their briefs are written from. Joins ledger, machine and pages; owns no behaviour."""

from __future__ import annotations

import hashlib
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from keepfast import settings
from keepfast.ledger import Ledger
from keepfast.model import Machine, Run, Task
from keepfast.propose.agent import Agent, Job, Outcome, Page, Turn
from keepfast.propose.agents import BriefText
from keepfast.propose.base import Brief
from keepfast.propose.prices import price
from keepfast.propose.sequence import Crew

if TYPE_CHECKING:
    from keepfast.context import Device


def crew_of(ledger: Ledger, run: Run) -> Crew:
    """Agents of this run, told what its ledger holds. Each CLI has a folder of its own, where its conversations can go on."""
    root = ledger.folder.parent
    place = settings.cache_folder() / "agents" / f"{run.id}-{hashlib.sha256(str(root).encode()).hexdigest()[:12]}"
    return Crew(text_of(ledger, run), lambda name: hire(name, place, root))


def nobody() -> Crew:
    """For a list of proposers that is only looked at: names are checked, and nothing is set up for them."""
    return Crew(lambda brief: ("", ()), Named)


class Named(Struct, frozen=True):
    """An agent that was only named. UsageError for a name that means none."""

    name: str

    def __post_init__(self) -> None:
        room = import_module(f"keepfast.propose.{'chat' if _is_chat(self.name) else 'command'}")
        room.named(self.name)

    def turn(self, job: Job) -> Turn:
        return Turn(Outcome.MISSING, "it was only named")


def hire(name: str, place: Path, root: Path) -> Agent:
    """The agent of that name: a model behind an API, or a coding-agent CLI in a cage. MachineError where there is no cage."""
    if _is_chat(name):
        from keepfast.propose import chat

        return chat.ChatAgent(chat.named(name), price=price)
    from keepfast.propose import command
    from keepfast.propose.command.agent import Setup
    from keepfast.propose.command.cage import find_cage

    never = (str(Path("~").expanduser()), str(root))
    return command.hire(name, Setup(place / name, find_cage(settings.agents_path()), never=never, price=price))


def _is_chat(name: str) -> bool:
    return name.startswith(("chat:", "anthropic:"))


def text_of(ledger: Ledger, run: Run) -> BriefText:
    def text(brief: Brief) -> tuple[str, tuple[Page, ...]]:
        from keepfast.context import choose
        from keepfast.propose import brief as briefs
        from keepfast.propose.brief_facts import Records, as_files, facts_of, need_of

        hand = brief.idea.n if brief.idea else None
        records = Records(brief.ideas, ledger.directs(run.id), ledger.baselines(run.id), hand)
        reference = reference_of(brief.task)
        pages = choose(need_of(brief.task, card_of(run.machine), brief.ideas, reference))
        return briefs.text(facts_of(brief, records, run.machine, reference, pages)), as_files(pages)

    return text


def reference_of(task: Task) -> str:
    """The text of reference.py; empty where there is none."""
    path = Path(task.folder) / "reference.py"
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def card_of(machine: Machine) -> Device | None:
    """The card of a run; None for a task of the CPU."""
    from keepfast.context import Device

    return Device(machine.gpu) if machine.gpu else None
