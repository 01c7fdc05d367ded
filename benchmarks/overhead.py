"""What keepfast itself costs: loop, ledger and git with recorded evaluations, and reading a long run back.

    python benchmarks/overhead.py [--experiments 10000] [--folder /tmp/keepfast-overhead] [--out benchmarks/results/overhead.json]

The loop is the real one, on a real repository; only the judge answers from a record, at once and with as many raw rounds as the real
one has. Three of four proposals are patches, the others whole files; 1 in 20 is kept. Then the commands are timed on that run, each in
a process of its own. Killed, it goes on where it was: the run is resumed and samples taken so far are read back. A folder left from
another version of this script should be removed by hand.
"""

from __future__ import annotations

import argparse
import difflib
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
from msgspec import Struct

from keepfast import lifecycle, loop, model, settings
from keepfast.ledger import Ledger
from keepfast.propose.base import Brief
from keepfast.repo import Repo
from keepfast.task.load import load
from keepfast.testing import RecordedJudge, keep, reject, revert

HERE = Path(__file__).parent
FIRST = 1000  # experiments that the figure per experiment and the memory growth are about
BLOCK = 100  # experiments between two samples
REPEATS = 5
COMMANDS = (("log",), ("show", "N"), ("show", "N", "--diff"), ("report",), ("status",))  # N: the last keep
MACHINE = model.Machine("recorded", 1, "", "", "none", hash="recorded")
TASK = """\
schema = 1
title = "overhead of the loop"
signature = "copy(Tensor x) -> Tensor"
axes = ["n"]

[[case]]
name = "n64"
n = 64
"""
REFERENCE = "def inputs(case, rng):\n    return {'x': rng.random(case['n'])}\n\n\ndef reference(x):\n    return x\n"


class Sample(Struct, frozen=True):
    """Up to experiment `n`, within one process."""

    n: int
    experiments: int
    seconds: float
    resident_kb: int


class Read(Struct, frozen=True):
    what: str
    seconds_median: float
    seconds: tuple[float, ...]


class Report(Struct, frozen=True):
    machine: str
    load: float  # of the machine, over a minute, before the commands were timed
    experiments: int
    ms_per_experiment: float  # of the first 1,000
    ms_per_experiment_all: float
    memory_kb_per_experiment: float  # of the first 1,000, less the first 100
    memory_kb_per_experiment_all: float
    reads: tuple[Read, ...]
    samples: tuple[Sample, ...]


# --------------------------------------------------------------------------------------------- what is proposed and judged


def source(n: int) -> str:
    """A kernel of about 4 kB that differs from any other in one line."""
    lines = [f"    sum += x[i + {i}] * {i}.0f;" for i in range(110)]
    lines[n % 110] = f"    sum += x[i + {n % 110}] * {n}.5f;"
    return "\n".join(("float kernel(const float *x, long i)", "{", "    float sum = 0.0f;", *lines, "    return sum;", "}", ""))


class Edits:
    name = "edits"

    def propose(self, brief: Brief) -> model.Proposal | None:
        n = len(brief.history) + 1
        old, new = brief.champion.files[0].data.decode(), source(n)
        change = model.Files((("kernel/kernel.c", new.encode()),)) if n % 4 == 0 else model.Patch(_diff(old, new))
        return model.Proposal(f"change line {n % 110}", self.name, change, f"edits/{n}")


def _diff(old: str, new: str) -> str:
    return "".join(difflib.unified_diff(old.splitlines(True), new.splitlines(True), "a/kernel/kernel.c", "b/kernel/kernel.c"))


def verdict(candidate: model.Candidate, against: model.Candidate) -> model.Verdict:
    if candidate.n % 20 == 0:
        return keep(1.01)
    return (revert(0.97), revert(1.0, reason=model.Reason.NO_GAIN), reject(model.Reason.WRONG))[candidate.n % 3]


# --------------------------------------------------------------------------------------------- the run


class Meter:
    """Takes a sample every BLOCK experiments, and keeps them in a file for a process that goes on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.samples = list(msgspec.json.decode(path.read_bytes(), type=tuple[Sample, ...])) if path.exists() else []
        self.began, self.count = time.perf_counter(), 0

    def __call__(self, event: model.Event) -> None:
        if event.kind == "run":
            self.began, self.count = time.perf_counter(), 0
        if event.kind == "verdict":
            self.count += 1
            if event.n % BLOCK == 0 and self.count:
                self._sample(event.n)

    def _sample(self, n: int) -> None:
        now = time.perf_counter()
        self.samples = [s for s in self.samples if s.n < n] + [Sample(n, self.count, now - self.began, resident_kb())]
        self.path.write_bytes(msgspec.json.encode(self.samples))
        self.began, self.count = time.perf_counter(), 0
        print(f"\r  {n} experiments", end="", file=sys.stderr, flush=True)


def resident_kb() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


def repository(folder: Path) -> Path:
    """The task's folder, in a repository with one commit."""
    where = folder / "repo" / "overhead"
    if (folder / "repo" / ".git" / "refs" / "heads" / "main").exists():
        return where
    shutil.rmtree(folder / "repo", ignore_errors=True)
    (where / "kernel").mkdir(parents=True)
    for name, text in (("kernel/kernel.c", source(0)), ("task.toml", TASK), ("reference.py", REFERENCE)):
        (where / name).write_text(text)
    who = ("-c", "user.name=benchmark", "-c", "user.email=benchmark@keepfast.invalid")
    for argv in (("init", "-q", "-b", "main"), ("add", "-A"), (*who, "commit", "-q", "-m", "start")):
        subprocess.run(["git", *argv], cwd=folder / "repo", check=True, env=settings.git_environment())
    return where


def turn(where: Path, experiments: int, meter: Meter) -> None:
    """Run the loop up to so many experiments, from wherever it is."""
    repo = Repo.find(where)
    loaded = load(where)
    task = msgspec.structs.replace(loaded, budget=model.Budget(experiments=experiments), goal=model.Goal())
    with Ledger.open(repo.ensure_state()) as ledger:
        new = lifecycle.Options(MACHINE, seed=1)
        run = lifecycle.resumable(task, ledger, MACHINE) if ledger.runs() else lifecycle.new_run(task, repo, ledger, new).run
        judge = RecordedJudge(verdict, logs=lambda c: -0.01 * (c.n // 20), case="n64")
        loop.run(loop.Session(task, repo, ledger, judge, Edits(), run, meter))
        if ledger.broken(run.id) is not None or len(ledger.experiments(run.id)) != experiments:
            raise SystemExit("the ledger is not what it should be")


# --------------------------------------------------------------------------------------------- reading it back


def reads(where: Path, experiments: int) -> tuple[Read, ...]:
    """The commands of the command line on the whole run, each in its own process."""
    kept = str(experiments - experiments % 20)
    return tuple(_timed(where, tuple(kept if word == "N" else word for word in argv)) for argv in COMMANDS)


def _timed(where: Path, argv: tuple[str, ...]) -> Read:
    env = os.environ | {"PYTHONPATH": os.pathsep.join(os.path.abspath(p) for p in sys.path if p)}
    seconds = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        done = subprocess.run([sys.executable, "-m", "keepfast", *argv], cwd=where, env=env, capture_output=True, check=False)
        seconds.append(time.perf_counter() - began)
        if done.returncode:
            raise SystemExit(f"keepfast {' '.join(argv)} failed: {done.stderr.decode()}")
    return Read(" ".join(argv), statistics.median(seconds), tuple(seconds))


# --------------------------------------------------------------------------------------------- the report


def machine() -> str:
    text = Path("/proc/cpuinfo").read_text()
    cpu = next((line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")), platform.machine())
    return f"{cpu}, {os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}"


def report(folder: Path, experiments: int) -> Report:
    meter = Meter(folder / "samples.json")
    where = repository(folder)
    turn(where, experiments, meter)
    print(file=sys.stderr)
    samples = tuple(meter.samples)
    first = tuple(s for s in samples if s.n <= FIRST)
    load_now = os.getloadavg()[0]
    return Report(
        machine=machine(),
        load=load_now,
        experiments=experiments,
        ms_per_experiment=_ms(first),
        ms_per_experiment_all=_ms(samples),
        memory_kb_per_experiment=_growth(first),
        memory_kb_per_experiment_all=_growth(samples),
        reads=reads(where, experiments),
        samples=samples,
    )


def _ms(samples: tuple[Sample, ...]) -> float:
    return 1e3 * sum(s.seconds for s in samples) / sum(s.experiments for s in samples)


def _growth(samples: tuple[Sample, ...]) -> float:
    return (samples[-1].resident_kb - samples[0].resident_kb) / max(1, samples[-1].n - samples[0].n)


def tell(found: Report) -> None:
    print(f"{found.machine}, load {found.load:.1f}")
    few = f"{min(FIRST, found.experiments)} experiments"
    print(f"  {few}: {found.ms_per_experiment:.1f} ms and {found.memory_kb_per_experiment:.2f} kB each, loop, ledger and git together")
    print(f"  {found.experiments} experiments: {found.ms_per_experiment_all:.1f} ms and {found.memory_kb_per_experiment_all:.2f} kB each")
    for read in found.reads:
        print(f"  keepfast {read.what:<18} {read.seconds_median:6.2f} s, median of {len(read.seconds)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--experiments", type=int, default=10_000, help=f"at least {BLOCK}")
    kept = Path(tempfile.gettempdir()) / "keepfast-overhead"
    parser.add_argument("--folder", type=Path, default=kept, help="where the run is kept between two calls")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "overhead.json")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    found = report(given.folder.resolve(), max(BLOCK, given.experiments))
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_bytes(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
    tell(found)


if __name__ == "__main__":
    main()
