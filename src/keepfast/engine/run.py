"""The story behind `keepfast e2e`: the champion in a real engine, the proof, its place in the ledger, what is printed.

Owns the order of things for one command. Must not know how an engine measures, nor what makes a proof.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from keepfast import exits, settings, shop
from keepfast.device import cpu, nvidia
from keepfast.engine import noise as aa
from keepfast.engine import plans, rung, shelf
from keepfast.engine.amdahl import Micro
from keepfast.engine.campaign import together
from keepfast.engine.plans import Kernel, Maker, Setting
from keepfast.errors import TaskError
from keepfast.ledger import Ledger
from keepfast.materialise import Workshop, tree_hash
from keepfast.model import Candidate, Estimate, File, Run, Task
from keepfast.model.proof import Proof, Together
from keepfast.model.task import Engine as Spec
from keepfast.repo import Repo
from keepfast.task import campaign
from keepfast.task.engine import unfit
from keepfast.task.paths import expand


class E2eOptions(Struct, frozen=True):
    """`rounds` None: as task.toml says. `working_tree`: the files as they lie there, not the champion's."""

    rounds: int | None = None
    working_tree: bool = False
    json: bool = False


class Subject(Struct, frozen=True):
    """What is proven: the files, which run they are the champion of, and what is known of them alone."""

    task: Task
    candidate: Candidate
    run: Run | None
    micro: Estimate | None


class Noise(Struct, frozen=True):
    """What `e2e --aa --json` prints: stock in both arms. Log-ratios."""

    schema: str
    task: str
    cells: tuple[tuple[str, float, float, int], ...]  # name, SD between rounds, mean, rounds
    sd: float
    mean: float
    rounds: int


def start(folder: Path, options: E2eOptions, make: Maker = plans.engine) -> int:
    """`keepfast e2e TASK`."""
    task, spec = _task(folder, options)
    repo = Repo.find(Path(task.folder))
    with Ledger.open(repo.ensure_state()) as ledger, ledger.hold(""):
        subject = _subject(task, repo, ledger, options)
        _murmur(options, f"{task.name}: {_called(subject)} in {spec.kind}, {len(spec.cells)} cells, {spec.rounds} rounds")
        setting = _setting(spec, Path(task.folder), options, ledger)
        proof = rung.proven(task, subject.candidate.files, subject.micro, setting, rung.Ways(make, partial(rung.known, ledger)))
        rung.write_down(ledger, subject.run.id if subject.run else "", subject.candidate.n, proof)
    _tell(proof, options)
    return exits.of_outcome(proof.outcome)


def noise(folder: Path, options: E2eOptions, make: Maker = plans.engine) -> int:
    """`keepfast e2e TASK --aa`: how far stock is from stock. Later proofs in this setting know it."""
    task, spec = _task(folder, options)
    repo = Repo.find(Path(task.folder))
    with Ledger.open(repo.ensure_state()) as ledger, ledger.hold(""):
        found = aa.measured(make(_setting(spec, Path(task.folder), options, ledger), ()).account(spec.rounds))
        rung.remember(ledger, found)
    _tell_noise(task, found, options)
    return exits.OK


def several(path: Path, options: E2eOptions, make: Maker = plans.engine) -> int:
    """`keepfast e2e --campaign FILE`: each task's champion alone, and all together."""
    found = campaign.read(path)
    spec = replace(found.engine, rounds=options.rounds or found.engine.rounds)
    tasks = [shop.load_task(Path(found.folder) / part.folder) for part in found.parts]
    if len({t.name for t in tasks}) < len(tasks):
        raise TaskError("two tasks have the same name", where=path.name, next_step="Rename one of their folders")
    repo = Repo.find(Path(tasks[0].folder))
    with Ledger.open(repo.ensure_state()) as ledger, ledger.hold(""), tempfile.TemporaryDirectory(prefix="keepfast-kernels-") as place:
        subjects = [_subject(task, repo, ledger, options) for task in tasks]
        _murmur(options, f"{', '.join(_called(s) for s in subjects)} in {spec.kind}, {len(spec.cells)} cells, {spec.rounds} rounds")
        kernels = tuple(
            Kernel(s.task, str(plans.lay(s.task, s.candidate.files, Path(place) / str(i))), part.slot, part.only)
            for i, (s, part) in enumerate(zip(subjects, found.parts, strict=True))
        )
        account = make(_setting(spec, Path(found.folder), options, ledger), kernels).account(spec.rounds)
        micros = tuple(Micro(s.task.name, s.micro) for s in subjects if s.micro is not None)
        result = together(account, rung.bounds(spec, rung.known(ledger, account)), micros)
        _write_each(ledger, subjects, result)
    _tell(result, options)
    return exits.of_outcome(result.outcome)


def _write_each(ledger: Ledger, subjects: list[Subject], result: Together) -> None:
    """Each task's own proof to its run; the whole beside them, to no run."""
    for subject, proof in zip(subjects, result.proofs, strict=False):
        rung.write_down(ledger, subject.run.id if subject.run else "", subject.candidate.n, proof)
    rung.write_down(ledger, "", 0, result)


# ------------------------------------------------------------------------------------------------ what is proven


def _task(folder: Path, options: E2eOptions) -> tuple[Task, Spec]:
    task = shop.load_task(folder)
    spec = unfit(task.engine, task.folder)
    spec = replace(spec, rounds=options.rounds or spec.rounds)
    return replace(task, engine=spec), spec


def _subject(task: Task, repo: Repo, ledger: Ledger, options: E2eOptions) -> Subject:
    """The champion of the task's last run as it is now; the files of the working tree before there is one, or when asked for."""
    run = None if options.working_tree else ledger.latest(task.name)
    best = ledger.champion(run.id) if run is not None and run.task_hash == task.hash else None
    if run is None or best is None:
        return Subject(task, _working_tree(task), None, None)
    return Subject(task, Workshop(task, repo).at(best.commit, best.n), run, _micro(ledger, run, best.n))


def _micro(ledger: Ledger, run: Run, n: int) -> Estimate | None:
    """What the champion gains alone: over the fastest baseline where that was measured directly, else over the start."""
    directs = [d for d in ledger.directs(run.id) if d.n == n]
    over = [d.estimate for d in directs if d.against.startswith("baseline ")]
    start = [d.estimate for d in directs if d.against == "start"]
    return max(over, key=lambda e: e.d) if over else start[-1] if start else None


def _working_tree(task: Task) -> Candidate:
    root = Path(task.root)
    paths = [p for p in expand(root, task.editable) if not (root / p).is_symlink()]
    files = tuple(File(p, (root / p).read_bytes()) for p in paths)
    return Candidate(files, tree_hash(files), "")


def _called(subject: Subject) -> str:
    return f"experiment {subject.candidate.n} of run {subject.run.id}" if subject.run else f"the working tree of {subject.task.name}"


def _setting(spec: Spec, base: Path, options: E2eOptions, ledger: Ledger) -> Setting:
    environment, machine = settings.engine_environment(), _machine(spec.device)
    return Setting(spec, base, environment, machine, Random(), _sayer(options), ledger.folder / shelf.FOLDER)


def _machine(device: str) -> str:
    """The card or the processor, by name. MachineError where there is no card and one is asked for."""
    return cpu.fingerprint("").cpu if device == "cpu" else nvidia.choose(settings.visible_gpu() or None).name


# ------------------------------------------------------------------------------------------------ what is said


def _sayer(options: E2eOptions) -> Callable[[str], None]:
    return lambda words: _murmur(options, words)


def _murmur(options: E2eOptions, words: str) -> None:
    from keepfast.report.escape import line

    if not options.json:
        print(f"  {line(words)}", file=sys.stderr, flush=True)


def _tell(found: Proof | Together, options: E2eOptions) -> None:
    from keepfast.cli.out import columns, emit, say
    from keepfast.report import e2e

    if options.json:
        emit(found)
    else:
        say(e2e.lines(found, columns()) if isinstance(found, Proof) else e2e.together(found, columns()))


def _tell_noise(task: Task, found: aa.Noise, options: E2eOptions) -> None:
    from keepfast.cli.out import emit, say
    from keepfast.report import numbers
    from keepfast.report.escape import line

    *rows, whole = found.spreads
    if options.json:
        cells = tuple((s.cell, s.sd, s.offset, s.rounds) for s in rows)
        emit(Noise("keepfast.e2e-noise/1", task.name, cells, whole.sd, whole.offset, whole.rounds))
        return
    table = [f"{line(s.cell):<24} SD {numbers.spread(s.sd):>7}   offset {100 * s.offset:+.2f} %" for s in found.spreads]
    ends = [f"   {numbers.count(s.rounds, 'round')}" for s in rows]
    say(["stock against stock", *(row + end for row, end in zip(table, [*ends, ""], strict=True))])
