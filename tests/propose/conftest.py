"""A task, candidates and histories for proposers, made by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from keepfast import model
from keepfast.propose.base import Brief, structure_hash
from keepfast.task import tunables

SPACE = """\
constraints = ["BLOCK * UNROLL <= 256"]

[BLOCK]
log2 = [16, 128]
value = 32

[UNROLL]
choices = [1, 2, 4, 8]
value = 1   # by hand

[LAYOUT]
choices = ["row", "tile"]
value = "row"
"""
KERNEL = model.File("kernel/kernel.c", b"int kernel(void) { return 0; }\n")
PATH = "kernel/tunables.toml"


def task(folder: Path | str = "/nowhere", tunables_path: str = PATH) -> model.Task:
    signature = model.Signature("f", (), (), "f() -> ()")
    return model.Task(
        name="t", title="", folder=str(folder), root=str(folder), signature=signature, languages=("c",), entry_path="kernel/kernel.c",
        entry_symbol="kernel", editable=("kernel/**",), axes=(), cases=(), arguments=(), goal=model.Goal(), budget=model.Budget(),
        rules=model.Rules(), limit=model.Limit(), build=model.Build(), tolerance=model.Tolerance(), baselines=(),
        tunables=tunables_path, threads=1, oracle="reference", hash="h",
    )  # fmt: skip


def candidate(text: str = SPACE, kernel: model.File = KERNEL, n: int = 1) -> model.Candidate:
    return model.Candidate((kernel, model.File(PATH, text.encode())), tree=f"tree{n}", commit="", n=n)


def verdict(reason: model.Reason, d: float | None = None) -> model.Verdict:
    gain = None if d is None else model.Estimate(d, d, d, 0.006, 6, "the champion")
    return model.Verdict(model.SENTENCES[reason][0], reason, gain=gain)


def experiment(n: int, reason: model.Reason, d: float | None = None, **more: object) -> model.Experiment:
    given = {"proposer": "search", "title": "", "source": "", "idea": None, "tree": f"tree{n}", "commit": "", "parent": 1} | more
    return model.Experiment(n=n, verdict=verdict(reason, d), started=0.0, seconds=1.0, **given)  # type: ignore[arg-type]


def play(proposer: object, score: Callable[[Mapping[str, object]], float | model.Reason], brief: Brief, most: int = 200) -> Brief:
    """Lets a proposer of tunables run: `score` gives the total log-ratio of values, or the reason why they fail."""
    for _ in range(most):
        proposal = proposer.propose(brief)  # type: ignore[attr-defined]
        if proposal is None:
            return brief
        brief = judged(brief, proposal, score(dict(proposal.change.values)))
    raise AssertionError("the proposer never ends")


def judged(brief: Brief, proposal: model.Proposal, result: float | model.Reason) -> Brief:
    assert isinstance(proposal.change, model.Tunables)
    n, champion = len(brief.history) + 1, brief.champion
    text = next(f.data for f in champion.files if f.path == PATH).decode()
    new = candidate(tunables.with_values(text, proposal.change.values), next(f for f in champion.files if f.path != PATH), n)
    total = float(brief.budget_left or 0)  # the champion's total, kept here because a brief has nowhere else for it
    if isinstance(result, model.Reason):
        reason, d = result, None
    else:
        d = result - total
        reason = model.Reason.FASTER if d < -0.01 else model.Reason.NO_GAIN
    structure = structure_hash(new.files, PATH)
    record = experiment(n, reason, d, proposer=proposal.proposer, parent=champion.n, tunables=proposal.change.values, structure=structure)
    kept = reason is model.Reason.FASTER
    return Brief(brief.task, new if kept else champion, (*brief.history, record), brief.seed, str(result if kept else total))


@pytest.fixture(scope="session")
def make() -> SimpleNamespace:
    given = {"space": SPACE, "path": PATH, "play": play, "judged": judged}
    return SimpleNamespace(task=task, candidate=candidate, experiment=experiment, verdict=verdict, **given)
