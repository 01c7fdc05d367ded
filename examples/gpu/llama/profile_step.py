"""Where the time of a stock step goes: kernels of one decode step of a model, by time. Needs torch and transformers.

    python examples/gpu/llama/profile_step.py [--model llama-3.1-8b-16] [--cell 8192x8] [--attention sdpa] [--top 15]

The step is the one that `keepfast e2e` measures: a replay of a CUDA graph. Without a card there are no kernels to show.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from keepfast.engine.base import Account, Cell
from keepfast.engine.transformers import Plan, TransformersEngine
from keepfast.errors import KeepfastError

ROUNDS = 3


def table(account: Account, top: int) -> Iterator[str]:
    """Lines for people: share of all kernels' time, milliseconds and launches in one step, name."""
    for graphs in account.graphs:
        launches, total = dict(graphs.launches), sum(seconds for _, seconds in graphs.seconds)
        yield f"{graphs.cell}, {graphs.arm}: {1e3 * total:.3f} ms in {sum(launches.values())} kernels"
        for name, seconds in sorted(graphs.seconds, key=lambda each: -each[1])[:top]:
            yield f"{100 * seconds / total:5.1f} %  {1e3 * seconds:8.3f} ms  {launches.get(name, 0):5} x  {name[:110]}"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="llama-3.1-8b-16")
    parser.add_argument("--cell", default="8192x8", help="context and batch")
    parser.add_argument("--attention", default="sdpa")
    parser.add_argument("--top", type=int, default=15)
    options = parser.parse_args(arguments)
    context, _, batch = options.cell.partition("x")
    plan = Plan(options.model, (Cell("decode", int(context), int(batch or 1)),), attention=options.attention, rounds=ROUNDS, float32=False)
    try:
        account = TransformersEngine(plan, said=lambda line: print(line, file=sys.stderr)).account(ROUNDS)
    except KeepfastError as error:
        print(error.text(), file=sys.stderr)
        return error.exit_code
    print("\n".join(table(account, options.top)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
