"""The stories behind `run`, `check`, `demo`, `calibrate`: each sets up, tells, and returns the exit code.

Owns the order of things for one command. Must not know how anything is judged, stored or drawn.
"""

from __future__ import annotations

import secrets
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from keepfast import exits, lifecycle, settings, shop
from keepfast.crew import crew_of, nobody
from keepfast.errors import MachineError, TaskError
from keepfast.judge import decide, guard
from keepfast.judge.lint import Report
from keepfast.ledger import Ledger, lock
from keepfast.loop import Session
from keepfast.loop import run as turn
from keepfast.materialise import Workshop, refusal, tree_hash
from keepfast.model import Calibration, Candidate, End, Event, File, Run, Task, Verdict
from keepfast.notify import Notify
from keepfast.options import RunOptions, as_begun
from keepfast.options import settings as options_of
from keepfast.propose.base import Proposer
from keepfast.propose.sequence import Crew, named
from keepfast.shop import Shop
from keepfast.task.paths import expand

# ------------------------------------------------------------------------------------------------ run


def start(folder: Path, options: RunOptions) -> int:
    """`keepfast run`."""
    if options.detach:
        return _detach(folder, options)
    _proposer(options, nobody())  # UsageError for a name that is unknown, before anything is set up
    if options.notify:
        Notify(options.notify, lambda event: None)
    ready = shop.open_shop(folder, options)
    score = _fit(ready, options)
    with Ledger.open(ready.repo.ensure_state()) as ledger:
        run, notes = _run_record(ready, ledger, options)
        if options.resume:
            ready = replace(ready, task=shop.with_options(as_begun(ready.task, run), options))
        return _live(shop.measured(ready), Told(ledger, run, (*notes, f"task: {score.score}")), options)


def _fit(ready: Shop, options: RunOptions) -> Report:
    """The task's mutation score. Whatever can be refused before anything is written is refused here."""
    if lock.holder(ready.repo.state) is not None:
        with lock.held(ready.repo.state, ""):  # UsageError that says who, unless it has ended by now
            pass
    if options.resume:
        with Ledger.open(ready.repo.state, readonly=True) as ledger:
            lifecycle.resumable(ready.task, ledger, ready.machine)
    _hand(ready.task)
    with shop.judge(ready, lambda event: None, lambda code: None) as judge:
        return judge.lint()


class Told(Struct, frozen=True):
    """A run, where it is written down, and what the user should know of it."""

    ledger: Ledger
    run: Run
    notes: tuple[str, ...]


def _run_record(ready: Shop, ledger: Ledger, options: RunOptions) -> tuple[Run, tuple[str, ...]]:
    """A new run, or the last one to go on with; and what the user should know of it."""
    if options.resume:
        return lifecycle.resumable(ready.task, ledger, ready.machine), ("going on where it ended",)
    with ledger.hold(""):
        seed = secrets.randbits(32) if options.seed is None else options.seed
        began = lifecycle.new_run(ready.task, ready.repo, ledger, lifecycle.Options(ready.machine, seed, options_of(options, ready.task)))
    edited = f"uncommitted edits are part of this run: {', '.join(began.edited)}" if began.edited else ""
    return began.run, tuple(note for note in (edited,) if note)


def _proposer(options: RunOptions, crew: Crew) -> Proposer:
    names = ("random" if n == "search" and options.sampler == "random" else n for n in options.proposer)
    return named(",".join(names), crew=crew)


def _live(ready: Shop, told: Told, options: RunOptions) -> int:
    """The loop under a live view; then the report and the closing lines."""
    from rich.console import Console

    from keepfast.report import book
    from keepfast.report.live import Live

    ledger, run = told.ledger, replace(told.run, machine=ready.machine)
    proposer = _proposer(options, crew_of(ledger, run))
    console = Console(stderr=options.json, highlight=False)
    past = book.read(ledger, run, ready.task) if options.resume else None
    with Live(ready.task, run, console, book=past) as live, shop.judge(ready, live, _known(ledger, run)) as judge:
        for note in told.notes:
            live(Event("note", note))
        heard = Notify(options.notify, live) if options.notify else live
        proving = Proving(ready.task, ledger, run, heard)
        end = turn(Session(ready.task, ready.repo, ledger, judge, proposer, run, heard, prove=proving.prove))
    return _closing(ready, ledger, end, options)


class Proving(Struct, frozen=True):
    """Keeps in the task's engine, when it names one."""

    task: Task
    ledger: Ledger
    run: Run
    tell: Callable[[Event], None]

    def prove(self, kept: Candidate, verdict: Verdict, keeps: int) -> None:
        """What cannot be proven here is said; the keep stays a keep either way, and is shipped only with a proof that passed."""
        from keepfast.engine import rung, shelf
        from keepfast.engine.plans import Setting

        if self.task.engine is None or not rung.due(self.task, keeps):
            return
        environment, name = settings.engine_environment(), self.run.machine.gpu or self.run.machine.cpu
        keep = self.ledger.folder / shelf.FOLDER
        setting = Setting(self.task.engine, Path(self.task.folder), environment, name, Random(), lambda words: None, keep)
        try:
            ways = rung.Ways(known=partial(rung.known, self.ledger))
            proof = rung.proven(self.task, kept.files, verdict.gain, setting, ways)
            rung.write_down(self.ledger, self.run.id, kept.n, proof)
            said = f"end to end: {proof.outcome.value}"
        except (MachineError, TaskError) as problem:
            said = f"not proven end to end: {problem.what}"
        self.tell(Event("note", f"experiment {kept.n} {said}", n=kept.n))


def _known(ledger: Ledger, run: Run) -> shop.Known:
    def known(code: str) -> int | None:
        found = ledger.seen_code(run.id, code)
        return found.n if found else None

    return known


def _closing(ready: Shop, ledger: Ledger, end: End, options: RunOptions) -> int:
    from keepfast.cli.out import columns, emit, say
    from keepfast.report import book, facts, html, summary

    page = ready.repo.state / "report" / f"{end.run.id}.html"
    found = book.read(ledger, end.run, ready.task)
    html.write(found, lambda n: _diff(ready, ledger, end.run, n), page)
    if options.json:
        emit(facts.report(found, html=str(page)))
    else:
        say(["", *summary.end(found, end.why, page, columns())])
    return exits.of_state(end.state, bool(ready.task.goal.speedup or ready.task.goal.limit))


def _diff(ready: Shop, ledger: Ledger, run: Run, n: int) -> str:
    one = ledger.experiment(run.id, n)
    return ready.repo.diff(ledger.experiment(run.id, one.parent).commit, one.commit) if one.commit and one.parent else ""


def _detach(folder: Path, options: RunOptions) -> int:
    """The same command in a session of its own, its output in .keepfast/run.log; returns when it holds the ledger or has ended."""
    from keepfast.cli.done import tell

    _proposer(options, nobody())
    ready = shop.open_shop(folder, options)
    _fit(ready, options)
    log = ready.repo.ensure_state() / "run.log"
    began = log.stat().st_size if log.exists() else 0
    with log.open("ab") as out, Ledger.open(ready.repo.state) as ledger:
        argv = [sys.executable, "-m", "keepfast", *(a for a in sys.argv[1:] if a != "--detach")]
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
        while child.poll() is None and not ((holder := ledger.holder()) and holder.pid == child.pid and holder.run):
            time.sleep(0.05)
    if child.returncode:
        print(log.read_bytes()[began:].decode(errors="replace"), file=sys.stderr)
        return child.returncode
    facts = (("pid", str(child.pid)), ("log", str(log)))
    tell(f"running in the background as process {child.pid}, output in {log}", "keepfast log --follow", json=options.json, facts=facts)
    return exits.OK


# ------------------------------------------------------------------------------------------------ check


class Check(Struct, frozen=True):
    """What `check --json` prints."""

    schema: str
    task: str
    mutants: str
    against: str
    verdict: Verdict


def check(folder: Path, options: RunOptions) -> int:
    """`keepfast check`: lint the task, judge the working tree once against the champion, or against HEAD before there is one."""
    json, task = options.json, shop.load_task(folder, options)
    if task.gpu and (why := shop.lack_of_gpu()):
        verdict = shop.compiled(task, _hand(task), options, why)
        _tell_check(task, None, "nothing: there is no GPU here", verdict, json)
        return exits.of_kind(verdict.kind)
    ready = shop.open_shop(folder, options)
    score, candidate = _fit(ready, options), _hand(ready.task)
    refused = guard.check(ready.task, candidate, candidate)
    if isinstance(refused, guard.Refused):
        verdict, against = refusal(refused.reason, refused.detail), "nothing: it was turned away before"
    else:
        with Ledger.open(ready.repo.ensure_state()) as ledger, ledger.hold(""):
            champion, against = _opponent(ready, ledger, candidate)
            verdict = _judged(shop.measured(ready), ledger, candidate, champion, json)
    _tell_check(ready.task, score, against, verdict, json)
    return exits.of_kind(verdict.kind)


def _hand(task: Task) -> Candidate:
    """The editable files of the working tree."""
    root = Path(task.root)
    paths = expand(root, task.editable)
    if linked := next((p for p in paths if (root / p).is_symlink()), None):
        raise TaskError(
            "is a symbolic link; a candidate is made of plain files",
            where=linked,
            next_step=f"cp --remove-destination $(readlink -f {linked}) {linked}",
        )
    files = tuple(File(p, (root / p).read_bytes(), bool((root / p).stat().st_mode & 0o100)) for p in paths)
    return Candidate(files, tree_hash(files), "")


def _opponent(ready: Shop, ledger: Ledger, candidate: Candidate) -> tuple[Candidate, str]:
    """The champion of this task's last run, else the kernel at HEAD, else the candidate itself."""
    workshop, last = Workshop(ready.task, ready.repo), ledger.latest(ready.task.name)
    best = ledger.champion(last.id) if last is not None and last.task_hash == ready.task.hash else None
    if best is not None:
        return workshop.at(best.commit, best.n), f"experiment {best.n} of run {last.id if last else ''}"
    head = ready.repo.files(ready.repo.head(), ready.task.editable, ready.task.root)
    if head and tree_hash(head) != candidate.tree:
        return Candidate(head, tree_hash(head), ""), "HEAD"
    return candidate, "itself"


def _judged(ready: Shop, ledger: Ledger, candidate: Candidate, champion: Candidate, quiet: bool) -> Verdict:
    """The verdict on the candidate; on the champion alone when they are the same."""
    known = ledger.calibration(ready.machine.hash, ready.task.hash)
    with shop.judge(ready, lambda event: None if quiet else _murmur(event), lambda code: None) as judge:
        verdict = judge.ready(champion, known)
        if candidate.tree != champion.tree and verdict.kept:
            verdict = judge.evaluate(candidate, champion, ())
        if judge.calibration is not None and judge.calibration != known:
            ledger.add_calibration(ready.task.hash, judge.calibration)
        return verdict


def _murmur(event: Event) -> None:
    """Progress of a single judgement: one plain line on stderr for what takes seconds."""
    from keepfast.report.escape import line

    if event.kind in ("calibrate", "note", "baseline") and event.text:
        print(f"  {line(event.text)}", file=sys.stderr)


def _tell_check(task: Task, score: Report | None, against: str, verdict: Verdict, json: bool) -> None:
    from keepfast.cli.out import emit, say
    from keepfast.report import show
    from keepfast.report.escape import line

    mutants = score.score if score else "not tried against wrong answers"
    if json:
        emit(Check("keepfast.check/1", task.name, mutants, against, replace(verdict, rounds=())))
        return
    frozen = "   oracle: the frozen kernel, same as before, not proven right" if task.oracle == "frozen" else ""
    say([f"task     ok      {line(task.title)}: {mutants}{frozen}", f"against  {line(against)}", *show.judged(verdict)])


# ------------------------------------------------------------------------------------------------ calibrate


class Calibrated(Struct, frozen=True):
    """What `calibrate --json` prints."""

    schema: str
    task: str
    calibration: Calibration
    ceilings: tuple[tuple[str, float], ...]
    mde: float
    false_keep: float
    biased: bool


def calibrate(folder: Path, options: RunOptions) -> int:
    """`keepfast calibrate`: measure ceilings and noise anew, and store them."""
    ready, json = shop.open_shop(folder, options), options.json
    _fit(ready, options)
    ready, start = shop.measured(ready), _hand(ready.task)
    with Ledger.open(ready.repo.ensure_state()) as ledger, ledger.hold(""):
        with shop.judge(ready, lambda event: None if json else _murmur(event), lambda code: None) as judge:
            verdict = judge.ready(start, None)
            if not verdict.kept:
                raise TaskError(f"the kernel does not pass: {verdict.detail}", where=ready.task.entry_path, next_step="keepfast check")
            found = judge.calibrated()
        ledger.add_calibration(ready.task.hash, found)
    _tell_calibration(ready, found, json)
    return exits.OK


def _tell_calibration(ready: Shop, found: Calibration, json: bool) -> None:
    from keepfast.cli.out import emit, say
    from keepfast.report import numbers

    biased = abs(found.offset) > 2 * found.sigma / found.rounds**0.5
    mde, chance = decide.mde(found), decide.false_keep(found)
    if json:
        emit(Calibrated("keepfast.calibrate/1", ready.task.name, found, ready.machine.ceilings, mde, chance, biased))
        return
    say(
        [
            *(f"{name:<22} {value:8.1f}" for name, value in ready.machine.ceilings),
            f"noise    SD between rounds {numbers.spread(found.sigma)}, offset {100 * found.offset:+.2f} %, {found.rounds} rounds",
            f"layout   SD {numbers.spread(found.layout)} over {found.layouts} builds of the same code in other places",
            f"bias     {'one arm is preferred: run it again on a quieter machine' if biased else 'none seen'}",
            f"judge    gains above {numbers.spread(found.margin)} count; the smallest it is likely to see is {numbers.spread(mde)}",
            f"errors   a change of no effect is kept with a chance of {chance:.1g}",
        ]
    )


# ------------------------------------------------------------------------------------------------ demo


def demo(folder: Path | None, json: bool) -> int:
    """`keepfast demo`: the example task in a repository of its own, and the real loop on it."""
    place = _fresh_folder(folder)
    _repository(place)
    if not json:
        print(f"a row softmax in C, in a repository of its own: {place}\n", flush=True)
    code = start(place / "softmax", RunOptions(json=json))
    if not json:
        print(f"\nlook around:  cd {place}  then  keepfast log | keepfast show 6 | keepfast report", flush=True)
    return code


def _fresh_folder(folder: Path | None) -> Path:
    taken = (Path.cwd() / (f"keepfast-demo-{i}" if i else "keepfast-demo") for i in range(1000))
    place = folder or next(p for p in taken if not p.exists())
    if place.exists() and any(place.iterdir()):
        raise TaskError("is not empty", where=str(place), next_step="keepfast demo --folder somewhere-new")
    place.mkdir(parents=True, exist_ok=True)
    return place.resolve()


def _repository(place: Path) -> None:
    """A git repository with the demo task as its first commit."""
    import shutil

    shutil.copytree(demo_task(), place / "softmax", ignore=shutil.ignore_patterns("__pycache__"))
    who = ("-c", "user.name=keepfast demo", "-c", "user.email=demo@keepfast.invalid", "-c", "commit.gpgsign=false")
    for argv in (("init", "-q", "-b", "main"), ("add", "-A"), (*who, "commit", "-q", "-m", "a plain row softmax")):
        subprocess.run(["git", *argv], cwd=place, check=True, env=settings.git_environment(), stdin=subprocess.DEVNULL)


def demo_task() -> Path:
    """The softmax task: in the wheel beside the package, in a checkout under examples/."""
    here = Path(__file__).parent
    return next(p for p in (here / "demo" / "softmax", here.parent.parent / "examples" / "cpu" / "softmax") if p.is_dir())
