"""What the command line asks for, as records: the words between `cli` and `run`. Knows neither.

None or empty means "not given": the task decides, then the default.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from keepfast.model import Run, Task

WALLS = ("auto", "walls", "partial", "none")
SAMPLERS = ("tpe", "random")


class RunOptions(Struct, frozen=True):
    """`keepfast run`. Budgets and goal replace those of task.toml for this run."""

    proposer: tuple[str, ...] = ("deck", "search")  # tried in this order; the next one takes over when one has nothing left
    resume: bool = False
    detach: bool = False
    experiments: int | None = None
    hours: float | None = None
    dry: int | None = None
    goal: float | None = None  # speedup, over what `[goal] over` says
    seed: int | None = None
    walls: str = "auto"  # one of WALLS
    trust_candidate: bool = False
    sampler: str = "tpe"  # one of SAMPLERS
    json: bool = False
    arch: str = "sm_90"  # what a GPU candidate is compiled for where there is no GPU
    dollars: float | None = None
    notify: str = ""  # a command that is started with a line of news


def settings(options: RunOptions, task: Task) -> tuple[tuple[str, str], ...]:
    """What a run was begun with, as `Run.settings`; `task` has goal and budget of the options in it already. Reports read it back."""
    goal, budget = task.goal, task.budget
    asked = {"goal": goal.speedup, "over": goal.over if goal.speedup else None, "limit": goal.limit}
    asked |= {name: getattr(budget, name) for name in ("experiments", "hours", "dry", "dollars")}
    words = tuple((name, str(value)) for name, value in asked.items() if value is not None)
    return (("proposer", ",".join(options.proposer)), ("sampler", options.sampler), ("walls", options.walls), *words)


def as_begun(task: Task, run: Run) -> Task:
    """The task with the goal and the budget that `run` was begun with: what `settings` wrote, read back."""
    said = dict(run.settings)
    kinds = {"experiments": int, "dry": int, "hours": float, "dollars": float}
    budget = replace(task.budget, **{name: kind(said[name]) for name, kind in kinds.items() if name in said})
    goal = replace(task.goal, speedup=float(said["goal"])) if "goal" in said else task.goal
    return replace(task, goal=goal, budget=budget)
