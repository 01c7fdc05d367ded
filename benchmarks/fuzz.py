"""Arbitrary bytes for everything that reads what others wrote, for ten minutes unless told otherwise.

    python benchmarks/fuzz.py [--minutes N] [--only WORD] [--seed N]

Every target gets the same time, in turns. Prints the runs of each target, how many behaviours were seen, and every failure with its input;
exits with 1 when there is one. The corpus lives in memory: Ctrl-C ends the run early and prints the same table.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import suppress
from random import Random

import fuzz_targets
import fuzzing

TURN_S = 1.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--only", default="", help="targets whose name holds this word")
    parser.add_argument("--seed", type=int, default=0, help="0: another one each time")
    asked = parser.parse_args()
    seed = asked.seed or time.time_ns() % 2**32
    runs = [fuzzing.begun(t) for t in fuzz_targets.targets() if asked.only in t.name]
    if not runs:
        parser.error(f"no target holds `{asked.only}`; known: {', '.join(t.name for t in fuzz_targets.targets())}")
    with suppress(KeyboardInterrupt):
        go(runs, Random(seed), 60 * asked.minutes)
    fuzz_targets.close()
    report(runs, seed)
    return 1 if any(run.failures for run in runs) else 0


def go(runs: list[fuzzing.Tried], rng: Random, seconds: float) -> None:
    """Turns of TURN_S for each target until the time is over; a first turn of each in any case."""
    end, first = time.monotonic() + seconds, True
    while first or time.monotonic() < end:
        for run in runs:
            turn = min(TURN_S, seconds / len(runs))
            if first or time.monotonic() < end:
                fuzzing.go_on(run, rng, seconds=turn)
        first = False


def report(runs: list[fuzzing.Tried], seed: int) -> None:
    print(f"{'target':<18} {'runs':>10} {'a second':>9} {'behaviours':>10} {'failures':>8}")
    for run in runs:
        rate = run.runs / run.seconds if run.seconds else 0.0
        print(f"{run.target.name:<18} {run.runs:>10,} {rate:>9,.0f} {len(run.seen):>10,} {len(run.failures):>8}")
    total, failures = sum(run.runs for run in runs), sum(len(run.failures) for run in runs)
    print(f"{len(runs)} targets, {total:,} runs in {sum(r.seconds for r in runs):.0f} s, {failures} failures, seed {seed}")
    for run in runs:
        for data, wrong in run.failures.values():
            print(f"\n{run.target.name}: {wrong}\n  {data[:400]!r}")


if __name__ == "__main__":
    sys.exit(main())
