"""Decisions resampled from recorded no-op rounds: how often is a change of no effect kept?

    python benchmarks/resample.py RECORDING.json [--decisions 20000] [--seed 1] [--out benchmarks/results/resample.json]

A recording is what the judge measured with changes that do nothing (an A/A run), as `Recording` below, written by `msgspec.json.encode`:

    {"schema": 1, "task": "softmax-rows", "machine": {Machine}, "evaluations": [
        {"change": "reordered functions", "calibration": {Calibration}, "rounds": [
            {"phase": "screen", "d": -0.0012, "cases": [{"case": "n4096", "d": -0.0012, "subject_ns": 1.0e6, "opponent_ns": 1.0e6}, ...]},
            ...]}, ...]}

Every round of a no-op counts, whatever its phase. `d` is ln(time of subject / time of opponent). Each evaluation needs two rounds or more.

Rounds are drawn with replacement, anew for every phase, and handed to `decide.next_step` until it decides. Two ways, both reported:

    pooled      a round is any recorded round. What belongs to one build (its place in memory) becomes noise between rounds.
    by change   a decision is about one recorded change: its own offset (the mean of its rounds, shrunk by as much as that mean owes to
                chance) plus the deviation of any recorded round from its own change's mean.

The bound is Clopper-Pearson's for the number of decisions. It does not cover that the recording itself is a sample: record many changes.
A run is a function of recording and seed and takes seconds, so there is nothing to resume.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import os
import platform
import random
import sys
import time
from collections import Counter
from pathlib import Path

import msgspec
from msgspec import Struct

from keepfast import stats
from keepfast.errors import UsageError
from keepfast.judge.decide import Decision, Evidence, Measure, false_keep, next_step
from keepfast.model import Calibration, CaseRound, Kind, Machine, Phase, Round

LIMIT = 0.001
RESULTS = Path(__file__).parent / "results"

Row = tuple[float, ...]  # log-ratios of one round: the composite, then every case


class Evaluation(Struct, frozen=True):
    """A no-op, and every round that compared it with what it does not differ from."""

    calibration: Calibration
    rounds: tuple[Round, ...]
    change: str = ""


class Recording(Struct, frozen=True):
    machine: Machine
    evaluations: tuple[Evaluation, ...]
    task: str = ""
    schema: int = 1


class Result(Struct, frozen=True):
    method: str
    decisions: int
    false_keeps: int
    rate: float
    upper_95: float  # one-sided
    rounds_each: float
    reasons: dict[str, int]


class Report(Struct, frozen=True):
    recording: str
    recording_sha256: str
    task: str
    measured_on: Machine
    resampled_on: str
    evaluations: int
    rounds: int
    sigma_median: float
    margin_median: float
    expected_false_keep: float  # what the verdicts print, averaged over the recorded calibrations
    seed: int
    seconds: float
    results: tuple[Result, ...]


class Noise(Struct, frozen=True):
    """Where rounds come from: one of `rows`, moved by the offset of the change that is judged."""

    cases: tuple[str, ...]
    rows: tuple[Row, ...]
    offsets: tuple[Row, ...]  # one for each evaluation
    calibrations: tuple[Calibration, ...]


def read(path: Path) -> Recording:
    """A recording; UsageError when it is none or too little to draw from."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Recording)
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError(f"not a recording: {error}", where=str(path), next_step="see the first lines of benchmarks/resample.py") from None
    short = next((e for e in found.evaluations if len(e.rounds) < 2), None)
    if short or not found.evaluations:
        what = f"`{short.change}` has fewer than two rounds" if short else "no evaluations"
        raise UsageError(what, where=str(path), next_step="record every no-op with all rounds of a keep")
    return found


# --------------------------------------------------------------------------------------------- noise


def pooled(recording: Recording) -> Noise:
    cases, tables = _tables(recording)
    still = (0.0,) * (1 + len(cases))
    rows = tuple(row for table in tables for row in table)
    return Noise(cases, rows, (still,) * len(tables), tuple(e.calibration for e in recording.evaluations))


def by_change(recording: Recording) -> Noise:
    cases, tables = _tables(recording)
    means = [tuple(stats.mean(column) for column in zip(*table, strict=True)) for table in tables]
    rows = tuple(row for table, mean in zip(tables, means, strict=True) for row in _deviations(table, mean))
    columns = [_shrunk([m[k] for m in means], [[row[k] for row in table] for table in tables]) for k in range(1 + len(cases))]
    return Noise(cases, rows, tuple(zip(*columns, strict=True)), tuple(e.calibration for e in recording.evaluations))


def _tables(recording: Recording) -> tuple[tuple[str, ...], list[list[Row]]]:
    """Cases that every round has, and for each evaluation a row of log-ratios a round."""
    names = [{c.case for c in r.cases} for e in recording.evaluations for r in e.rounds]
    cases = tuple(sorted(set.intersection(*names)))
    return cases, [[_row(r, cases) for r in e.rounds] for e in recording.evaluations]


def _row(measured: Round, cases: tuple[str, ...]) -> Row:
    found = {c.case: c.d for c in measured.cases}
    return (measured.d, *(found[name] for name in cases))


def _deviations(table: list[Row], mean: Row) -> list[Row]:
    """Around their own mean n rounds spread by sqrt((n-1)/n) too little; that is put back."""
    wider = math.sqrt(len(table) / (len(table) - 1))
    return [tuple(wider * (x - m) for x, m in zip(row, mean, strict=True)) for row in table]


def _shrunk(means: list[float], samples: list[list[float]]) -> list[float]:
    """Means of changes, drawn together until they spread as much as the changes differ, and not as much as the means do."""
    if len(means) < 2:
        return means
    centre, seen = stats.mean(means), stats.sample_sd(means) ** 2
    chance = stats.mean([stats.sample_sd(s) ** 2 / len(s) for s in samples])
    keep = math.sqrt(max(0.0, seen - chance) / seen) if seen else 0.0
    return [centre + keep * (m - centre) for m in means]


# --------------------------------------------------------------------------------------------- decisions


def resample(noise: Noise, method: str, decisions: int, seed: int) -> Result:
    chance = random.Random(f"{method} {seed}")
    reasons, used, kept = Counter[str](), 0, 0
    for _ in range(decisions):
        decision, rounds = _decide(noise, chance)
        reasons[decision.reason.value] += 1
        used += rounds
        kept += decision.kind is Kind.KEEP
    return Result(method, decisions, kept, kept / decisions, upper_bound(kept, decisions), used / decisions, dict(sorted(reasons.items())))


def _decide(noise: Noise, chance: random.Random) -> tuple[Decision, int]:
    which = chance.randrange(len(noise.calibrations))
    rounds: tuple[Round, ...] = ()
    while isinstance(step := next_step(noise.calibrations[which], Evidence(rounds), ()), Measure):
        rounds += tuple(_round(noise, step.phase, chance.choice(noise.rows), noise.offsets[which]) for _ in range(step.rounds))
    return step, len(rounds)


def _round(noise: Noise, phase: Phase, row: Row, offset: Row) -> Round:
    d, *cases = (x + o for x, o in zip(row, offset, strict=True))
    return Round(phase, d, tuple(CaseRound(name, c, math.exp(c), 1.0) for name, c in zip(noise.cases, cases, strict=True)))


def upper_bound(hits: int, trials: int, alpha: float = 0.05) -> float:
    """Clopper-Pearson: the largest chance that gives `hits` or fewer in `trials` with probability `alpha`."""
    low, high = hits / trials, 1.0
    if hits == trials:
        return 1.0
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if _at_most(hits, trials, middle) > alpha else (low, middle)
    return high


def _at_most(hits: int, trials: int, p: float) -> float:
    logs = (_log_choose(trials, k) + k * math.log(p) + (trials - k) * math.log1p(-p) for k in range(hits + 1))
    return math.fsum(math.exp(x) for x in logs)


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


# --------------------------------------------------------------------------------------------- report


def report(path: Path, decisions: int, seed: int) -> Report:
    began, recording = time.monotonic(), read(path)
    calibrations = [e.calibration for e in recording.evaluations]
    results = (resample(pooled(recording), "pooled", decisions, seed), resample(by_change(recording), "by change", decisions, seed))
    return Report(
        recording=path.name,
        recording_sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        task=recording.task,
        measured_on=recording.machine,
        resampled_on=f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        evaluations=len(recording.evaluations),
        rounds=sum(len(e.rounds) for e in recording.evaluations),
        sigma_median=stats.median([c.sigma for c in calibrations]),
        margin_median=stats.median([c.margin for c in calibrations]),
        expected_false_keep=stats.mean([false_keep(c) for c in calibrations]),
        seed=seed,
        seconds=time.monotonic() - began,
        results=results,
    )


def text(found: Report) -> str:
    m = found.measured_on
    head = [
        f"measured on   {m.cpu}, {m.cores} cores, kernel {m.kernel}, {m.compiler}, walls {m.walls}",
        f"recording     {found.recording}: {found.evaluations} changes of no effect, {found.rounds} rounds, task {found.task or '-'}",
        f"noise         SD between rounds {found.sigma_median:.3%}, margin {found.margin_median:.3%} (medians)",
        f"printed       false keeps as the verdicts expect them: {found.expected_false_keep:.5f}",
    ]
    return "\n".join(head + [_line(r) for r in found.results])


def _line(r: Result) -> str:
    reasons = ", ".join(f"{n} {name}" for name, n in r.reasons.items())
    counted = f"{r.false_keeps} false keeps in {r.decisions} decisions: {r.rate:.5f}, at most {r.upper_95:.5f} at 95 %"
    return f"{r.method:<13} {counted}; {r.rounds_each:.1f} rounds each ({reasons})"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="False keeps in decisions resampled from recorded no-op rounds.")
    parser.add_argument("recording", type=Path)
    parser.add_argument("--decisions", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS / "resample.json")
    given = parser.parse_args(arguments)
    try:
        found = report(given.recording, given.decisions, given.seed)
    except UsageError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_bytes(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
    print(f"{text(found)}\nwritten       {given.out}")
    return int(any(r.rate > LIMIT for r in found.results))


if __name__ == "__main__":
    sys.exit(main())
