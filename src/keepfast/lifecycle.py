"""What happens to a run outside its turns: it is made, resumed, its branch follows the ledger, a suspect is cleared, it is finished.

Shared by the loop and the commands. Knows ledger and git; must not know the judge or the proposers.
"""

from __future__ import annotations

import re
import time
import unicodedata

from msgspec import Struct
from msgspec.structs import replace

from keepfast.errors import MachineError, TaskError, UsageError
from keepfast.ledger import Dropped, Ledger
from keepfast.materialise import structure_of, tunables_of
from keepfast.model import (
    SENTENCES,
    Begin,
    Candidate,
    End,
    Estimate,
    Experiment,
    Fact,
    Kind,
    Machine,
    Proposal,
    Reason,
    Run,
    Rung,
    Task,
    Verdict,
    percent,
)
from keepfast.progress import Progress
from keepfast.repo import Keep, Repo

DAY = 86400.0


class Options(Struct, frozen=True):
    """What a new run is given besides its task."""

    machine: Machine
    seed: int = 0
    settings: tuple[tuple[str, str], ...] = ()  # proposer, goal, budget as given
    title: str = ""


class When(Struct, frozen=True):
    """Number, beginning in unix time, length in seconds, and the champion's number then."""

    n: int
    started: float
    seconds: float
    parent: int


class Began(Struct, frozen=True):
    """A run that is ready to start, and which uncommitted files it includes. Nothing is in the ledger yet."""

    run: Run
    edited: tuple[str, ...]


def experiment(task: Task, proposal: Proposal, candidate: Candidate, verdict: Verdict, when: When) -> Experiment:
    """What the ledger keeps of one turn."""
    return Experiment(
        n=when.n,
        proposer=proposal.proposer,
        title=proposal.title,
        source=proposal.source,
        idea=proposal.idea,
        tree=candidate.tree,
        commit=candidate.commit,
        parent=when.parent,
        verdict=verdict,
        started=when.started,
        seconds=when.seconds,
        tunables=tunables_of(task, candidate.files),
        structure=structure_of(task, candidate.files) if candidate.files else "",
        dollars=proposal.dollars,
        tokens=proposal.tokens,
        edit=proposal.edit,
    )


def new_run(task: Task, repo: Repo, ledger: Ledger, options: Options) -> Began:
    """A run from HEAD and the uncommitted edits of the task. TaskError when the commit would hold no editable file."""
    run_id = _free_id(task.name, {*(r.id for r in ledger.runs()), *repo.runs()})
    head = repo.head()
    base, edited = repo.snapshot(_own_paths(task), run_id)
    if not repo.files(base, task.editable, task.root):
        what = f"no file matches editable = {list(task.editable)}, as git sees it"
        raise TaskError(what, where=f"{task.folder}/task.toml", next_step="is it ignored? git check-ignore -v " + task.entry_path)
    run = Run(
        id=run_id,
        task=task.name,
        task_hash=task.hash,
        task_folder=task.folder,
        branch=repo.branch(run_id),
        base=base,
        head=head,
        seed=options.seed,
        started=time.time(),
        machine=options.machine,
        settings=options.settings,
        title=options.title or task.title,
    )
    return Began(run, edited)


def resumable(task: Task, ledger: Ledger, machine: Machine) -> Run:
    """The task's last run, to go on with. UsageError when there is none, the task has changed since, or the machine is another."""
    run = ledger.latest(task.name)
    if run is None:
        raise UsageError(f"no run of {task.name} to resume", next_step=f"keepfast run {task.name}")
    if run.task_hash != task.hash:
        what = f"the task has changed since run {run.id} began, so its verdicts do not carry over"
        raise UsageError(what, where=f"{task.folder}/task.toml", next_step=f"keepfast run {task.name}   begins a new run")
    if run.machine.hash != machine.hash:
        what = f"run {run.id} was judged on another machine ({_difference(run.machine, machine)}): times do not compare"
        raise UsageError(what, next_step=f"keepfast run {task.name}   begins a new run here")
    return run


def settle(ledger: Ledger, repo: Repo, run: Run) -> str:
    """Put the run's branch where the ledger's keeps say; its tip, empty when it is checked out and was left alone."""
    keeps = [e for e in ledger.keeps(run.id) if e.verdict.reason is not Reason.START]
    told = (Keep(e.commit, _kept_message(run, e, ledger.head_hash(run.id, e.n)), e.started + e.seconds) for e in keeps)
    return repo.settle(run.id, run.base, tuple(told))


def finalize(ledger: Ledger, repo: Repo, run: Run, branch: str = "", base: str = "") -> str:
    """A clean branch with one commit a keep in the user's name, on the commit that was HEAD when the run began; the branch's name."""
    keeps = [e for e in ledger.keeps(run.id) if e.verdict.reason is not Reason.START]
    if not keeps:
        raise UsageError(f"run {run.id} has kept nothing, so there is nothing to finalize", next_step="keepfast report")
    name = branch or f"{run.branch}-final"
    told = tuple(Keep(e.commit, _final_message(run, e), e.started + e.seconds) for e in keeps)
    repo.finalize(name, base or run.head, told, run.base)
    return name


def end_of(run: Run, progress: Progress, history: tuple[Experiment, ...]) -> End:
    """What there is to say and to ship, from what the ledger holds."""
    tried = [e for e in history if e.verdict.reason is not Reason.START]
    directs = (progress.measured(o) for o in progress.opponents())
    return End(
        run=run,
        state=run.state,
        why="",
        champion=progress.champion,
        directs=tuple(d for d in directs if d is not None),
        counts=tuple((kind, sum(e.verdict.kind is kind for e in tried)) for kind in Kind),
        keeps=len(progress.keeps) - 1,
        cheats=sum(e.verdict.cheat for e in tried),
        branch=run.branch if progress.improved else "",
    )


# --------------------------------------------------------------------------------------------- clearing a suspect


SIGNED = "\x1f"  # between a reason and the name of who gives it, as a run gets both in one message


def signed(because: str, name: str) -> str:
    """A reason with the name of the human who gives it."""
    plain = line(because, 2000)
    return f"{plain}{SIGNED}{line(name, 120)}" if plain and name else plain


def clear(ledger: Ledger, repo: Repo, run: Run, n: int, because: str) -> Experiment | None:
    """Make suspect `n` the champion while no run is going on; the experiment that says so, None when it was done before.

    UsageError unless `n` is a suspect that was judged against the present champion: only then is it known to be faster. `because` is
    best `signed`: the name goes into the ledger with it.
    """
    with ledger.hold(run.id):
        return clear_held(ledger, repo, run, n, because)


def clear_held(ledger: Ledger, repo: Repo, run: Run, n: int, because: str) -> Experiment | None:
    """As `clear`, for the process that holds the ledger."""
    experiment = _cleared(ledger, run, n, because)
    if experiment is not None:
        repo.mark(run.id, experiment.n, experiment.commit)
        ledger.append(run.id, experiment)
    settle(ledger, repo, run)
    return experiment


def _cleared(ledger: Ledger, run: Run, n: int, because: str) -> Experiment | None:
    suspect, champion = ledger.experiment(run.id, n), ledger.champion(run.id)
    if suspect.verdict.kind is not Kind.SUSPECT:
        raise UsageError(f"experiment {n} is no suspect: {suspect.verdict.kind}", next_step=f"keepfast show {n}")
    if any(e.verdict.reason is Reason.CLEARED and e.tree == suspect.tree for e in ledger.keeps(run.id)):
        return None
    if champion is None or champion.n != suspect.parent:
        now = f"experiment {champion.n}" if champion else "nothing"
        what = f"experiment {n} was judged against experiment {suspect.parent}, and the champion is {now} by now"
        raise UsageError(what, next_step=f"put its change into the deck again: keepfast show {n} --diff")
    why, _, name = because.partition(SIGNED)
    if not why.strip():
        raise UsageError("a suspect is cleared for a reason", next_step=f'keepfast clear {n} --because "..."')
    last = ledger.experiments(run.id, newest=1)[0].n
    rungs = (Rung("cleared", True, 0.0, (Fact("by", name),)),) if name else ()
    verdict = replace(suspect.verdict, kind=Kind.KEEP, reason=Reason.CLEARED, detail=why.strip(), rungs=rungs, rounds=(), seconds=0.0)
    title, source = f"cleared{f' by {name}' if name else ''}: {suspect.title}", f"experiment {n}"
    return replace(suspect, n=last + 1, proposer="human", title=title, source=source, verdict=verdict, started=time.time(), seconds=0.0)


def number(text: str) -> int:
    """An experiment number as typed; UsageError for anything else."""
    if not text.isascii() or not text.isdigit():
        raise UsageError(f"`{text}` is no experiment number", next_step="keepfast log")
    return int(text)


# --------------------------------------------------------------------------------------------- cleaning up


class Collected(Struct, frozen=True):
    """What `gc` removed."""

    artifacts: int
    bytes: int
    refs: int


def collect(ledger: Ledger, repo: Repo, days: float | None = None) -> Collected:
    """Drop artifacts that nothing names and, with `days`, the refs of candidates that were not kept and are older.

    A run that is going on keeps its refs.
    """
    dropped: Dropped = ledger.gc()
    refs = 0
    holder = ledger.holder()
    ended = [r for r in ledger.runs() if holder is None or holder.run != r.id]
    for run in ended if days is not None else ():
        old = time.time() - (days or 0.0) * DAY
        refs += repo.drop(run.id, [e.n for e in ledger.experiments(run.id) if not e.verdict.kept and e.started < old])
    return Collected(dropped.artifacts, dropped.bytes, refs)


# --------------------------------------------------------------------------------------------- names and messages


def _free_id(task: str, taken: set[str]) -> str:
    """`softmax-1`: a name that is fit for a git ref whatever the task is called."""
    plain = unicodedata.normalize("NFKD", task).encode("ascii", "ignore").decode().lower()
    stem = re.sub(r"[^a-z0-9]+", "-", plain).strip("-") or "task"
    return next(name for i in range(1, len(taken) + 2) if (name := f"{stem}-{i}") not in taken)


def _own_paths(task: Task) -> tuple[str, ...]:
    """The task folder, and where its editable and readable files are when `root` is elsewhere."""
    patterns = (*task.editable, *task.build.sources, *task.build.include, *task.build.readable, task.entry_path)
    fixed = {re.split(r"[^/]*[*?\[]", p, maxsplit=1)[0].rstrip("/") for p in patterns}
    return (task.folder, *sorted(f"{task.root}/{p}" for p in fixed if p))


def gain_text(gain: Estimate) -> str:
    """`+41.8 % [41.1, 42.5], 6 rounds, against experiment 2`"""
    low, high = percent(gain.high), percent(gain.low)
    return f"{percent(gain.d):+.1f} % [{low:.1f}, {high:.1f}], {gain.rounds} rounds, against {gain.opponent}"


def _kept_message(run: Run, e: Experiment, chain: str) -> str:
    trailers = [("Run", run.id), ("Experiment", str(e.n)), ("Gain", _gain(e)), ("Proposer", e.proposer)]
    if e.idea is not None:
        trailers.append(("Idea", str(e.idea)))
    trailers.append(("Ledger", chain))
    return f"{line(e.title)}\n\n" + "".join(f"Keepfast-{name}: {line(value, 200)}\n" for name, value in trailers)


def _final_message(run: Run, e: Experiment) -> str:
    by = f"{e.proposer}, {e.source}" if e.source else e.proposer
    facts = (f"Gain: {_gain(e)}", f"Proposed by: {by}", f"Run {run.id}, experiment {e.n}, on {run.machine.cpu}")
    return f"{line(e.title)}\n\n" + "".join(f"{line(fact, 200)}\n" for fact in facts)


def _gain(e: Experiment) -> str:
    if e.verdict.gain is not None:
        return gain_text(e.verdict.gain)
    if e.verdict.reason is not Reason.CLEARED:
        return "not measured"
    who = next((f.value for rung in e.verdict.rungs for f in rung.facts if f.name == "by"), "hand")
    return f"cleared by {who}: {e.verdict.detail}"


def line(text: str, most: int = 72) -> str:
    """Foreign text as one printable line: it can end no line and so forge no trailer."""
    plain = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return plain if len(plain) <= most else plain[: most - 3] + "..."


def _difference(a: Machine, b: Machine) -> str:
    pairs = ((name, getattr(a, name), getattr(b, name)) for name in ("cpu", "cores", "kernel", "compiler", "walls", "gpu"))
    return next((f"{name}: {old}, now {new}" for name, old, new in pairs if old != new), "other ceilings")


def check_begun(task: Task, begun: Begin) -> None:
    """MachineError or TaskError when there is nothing to begin with."""
    verdict, goal = begun.verdict, task.goal
    if verdict.kind is Kind.VOID:
        raise MachineError(f"this machine cannot judge now: {verdict.detail}", next_step="keepfast doctor")
    if not verdict.kept:
        what = f"the kernel to start from does not pass: {SENTENCES[verdict.reason][1]}: {verdict.detail}"
        raise TaskError(what, where=task.entry_path, next_step="mend it, then keepfast check")
    if goal.speedup is not None and goal.over == "baseline" and not any(b.ok for b in begun.baselines):
        why = "; ".join(f"{b.name}: {b.detail}" for b in begun.baselines) or "there is none"
        step = 'mend or add a baseline, or write over = "start" under [goal]'
        raise TaskError(f"the goal is over the fastest passing baseline, and none passes ({why})", where="task.toml", next_step=step)
