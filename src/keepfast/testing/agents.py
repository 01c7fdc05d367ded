"""An agent that reads from a script: one turn after the other, whatever its job is. It keeps the jobs for a test to look at."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from keepfast.propose.agent import Job, Outcome, Turn, Usage
from keepfast.propose.agents import AgentProposer
from keepfast.propose.base import Brief

Script = Sequence[Turn] | Callable[[Job, int], Turn]
EDIT, FAULT = Usage(1000, 200, dollars=0.1), Usage(500, 50, dollars=0.05)  # what a turn costs unless it is said


class ScriptedAgent:
    """`propose.agent.Agent`. `script`: a list, of which the last turn is repeated; or a function of the job and the turn's number.

    `began`: turns that were taken before this process, so that a resumed run goes on in the list.
    """

    def __init__(self, name: str, script: Script, *, began: int = 0) -> None:
        self.name, self.script, self.taken = name, script, began
        self.jobs: list[Job] = []

    def turn(self, job: Job) -> Turn:
        n, self.taken = self.taken, self.taken + 1
        self.jobs.append(job)
        made = self.script(job, n) if callable(self.script) else self.script[min(n, len(self.script) - 1)]
        return replace(made, session=made.session or f"{self.name}-session")


def edit(path: str, data: bytes | None, *, title: str = "", usage: Usage = EDIT) -> Turn:
    """A turn that changed one file."""
    return Turn(Outcome.EDITED, changed=((path, data),), title=title, usage=usage, seconds=20.0, version="scripted 1")


def fault(outcome: Outcome, detail: str = "", *, usage: Usage = FAULT, until: float | None = None) -> Turn:
    """A turn that left nothing."""
    return Turn(outcome, detail, usage=usage, seconds=5.0, version="scripted 1", until=until)


def proposer(agent: ScriptedAgent) -> AgentProposer:
    """The agent as a proposer, with a brief of one line."""
    return AgentProposer(agent, lambda brief: (plain(brief), ()))


def plain(brief: Brief) -> str:
    return f"{brief.task.title}: champion {brief.champion.n}, {brief.budget_left}"
