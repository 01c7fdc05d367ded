"""The best configuration of transformers without writing a kernel, for each cell: what a kernel has to beat end to end.

    python benchmarks/e2e/best_config.py [--model llama-3.1-8b-16] [--device cuda] [--cells 8192x8,32768x4,131072x1,1024x1]
                                         [--prefill 1024x1] [--rounds 8] [--steps 20] [--arms sdpa_gqa,"sdpa default"] [--seconds 1200]
                                         [--fresh]

Every configuration of engine/best.py is an arm of one account for the cell, in CUDA graphs on a card, interleaved in random order each
round: the library's attentions, SDPA without repeated keys and values, by cuDNN, and over exactly the tokens that are there (flash), each
as it is, with torch.compile (in our graph, so what `reduce-overhead` is) and with its autotuning. What is compiled takes minutes, so what
is not comes first, in an account of its own. What cannot run is left out with its reason. Where that takes the whole account with it, its
configurations are measured one by one beside stock, and the one that failed is noted. Killed, or out of `--seconds`, it goes on where it
stopped when it is started again. It writes to benchmarks/results:

    best_config.jsonl   a line an account, or a line that says why there is none
    best_config.json    the ranking of every cell, and what failed

On a CPU: --model tiny --device cpu --cells 64x2 --arms eager,sdpa_gqa --rounds 2 --steps 3 --out DIR
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from keepfast.engine.base import STOCK, Account, Cell
from keepfast.engine.best import Rank, asked, configurations, merged, ranked
from keepfast.engine.transformers import Arm, Plan, TransformersEngine
from keepfast.errors import KeepfastError

RESULTS = Path(__file__).resolve().parents[1] / "results"
LEAST_S = 60.0  # an account that has less is not begun


class Item(Struct, frozen=True):
    """`failed`: why there is no account."""

    key: str
    account: Account | None = None
    cell: str = ""
    arms: tuple[str, ...] = ()
    failed: str = ""


class Cellful(Struct, frozen=True):
    """What is known of a cell."""

    cell: str
    ranks: tuple[Rank, ...]
    notes: tuple[str, ...]
    failed: tuple[str, ...]


class Search:
    """Accounts as they come, each written down before the next. `deadline`: of time.monotonic, no account begins after it."""

    def __init__(self, options: argparse.Namespace, deadline: float) -> None:
        self.options, self.deadline = options, deadline
        self.store = options.out / "best_config.jsonl"
        self.done = read(self.store)

    def cell(self, cell: Cell, arms: tuple[Arm, ...]) -> bool:
        """False when time was up before everything was known."""
        for group in groups(arms):
            item = self.measured(cell, group)
            if item is not None and item.failed and len(group) > 2:
                alone = [self.measured(cell, (group[0], arm)) for arm in group[1:]]
                item = None if None in alone else item
            if item is None:
                return False
        return True

    def measured(self, cell: Cell, arms: tuple[Arm, ...]) -> Item | None:
        """An account of these configurations, as it was found before or measured now; None when time is up."""
        o = self.options
        names = tuple(a.name for a in arms)
        key = f"{o.model} {o.device} {o.dtype} {cell.name} {o.rounds}x{o.steps} {list(names)}"
        if key in self.done:
            return self.done[key]
        left = self.deadline - time.monotonic()
        if left < LEAST_S:
            return None
        plan = Plan(o.model, (cell,), dtype=o.dtype, device=o.device, steps=o.steps, threads=o.threads, float32=False)
        _said(f"{cell.name}: {', '.join(names)}")
        try:
            account = TransformersEngine(asked(plan, cell, arms), limit_s=min(left, o.limit), said=_said).account(o.rounds)
            item = Item(key, account, cell.name, names)
        except KeepfastError as error:
            if self.deadline - time.monotonic() < LEAST_S:
                return None  # time was up in the midst of it: that says nothing of the configuration
            _said(error.text())
            item = Item(key, None, cell.name, names, error.what)
        self.done[key] = item
        with self.store.open("ab") as lines:
            lines.write(msgspec.json.encode(item) + b"\n")
        return item


def groups(arms: tuple[Arm, ...]) -> Iterator[tuple[Arm, ...]]:
    """Stock with what runs as it is, with what is compiled, and with what is autotuned: the cheap ones first."""
    for mode in (None, "default", "max-autotune"):
        found = tuple(a for a in arms[1:] if a.compile == mode)
        if found:
            yield (arms[0], *found)


def told(items: Iterator[Item] | list[Item]) -> tuple[Cellful, ...]:
    """Cell by cell: all rankings as one, by the ratio to the stock that each was interleaved with."""
    by_cell: dict[str, list[Item]] = {}
    for item in items:
        by_cell.setdefault(item.cell, []).append(item)
    return tuple(_told(cell, found) for cell, found in by_cell.items())


def _told(cell: str, items: list[Item]) -> Cellful:
    ranks = merged(tuple(ranked(i.account) for i in items if i.account is not None))
    notes = tuple(dict.fromkeys(n for i in items if i.account is not None for n in i.account.notes))
    known = {rank.arm for rank in ranks}
    failed = tuple(f"{', '.join(i.arms[1:])}: {i.failed}" for i in items if i.failed and not set(i.arms[1:]) <= known)
    return Cellful(cell, ranks, notes, failed)


def main(arguments: list[str]) -> int:
    options = _options(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    if options.fresh:
        (options.out / "best_config.jsonl").unlink(missing_ok=True)
    search = Search(options, time.monotonic() + (options.seconds or float("inf")))
    wanted = set(options.arms.split(",")) if options.arms else None
    arms = tuple(a for a in configurations() if wanted is None or a.name in {STOCK, *wanted})
    cells = [*_cells(options.cells, "decode"), *_cells(options.prefill, "prefill")]
    whole = all(search.cell(cell, arms) for cell in cells)
    found = told(list(search.done.values()))
    (options.out / "best_config.json").write_bytes(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
    for each in found:
        _show(each)
    if not whole:
        _said("time was up: start it again, and it goes on")
    return 0 if whole else 7


def _show(found: Cellful) -> None:
    for rank in found.ranks:
        alike = "" if rank.kl_mean is None else f", KL {rank.kl_mean:.1e}"
        spread = f"{rank.ratio:.3f}x stock (n {rank.rounds}, sd {100 * rank.sd:.2f} %)"
        print(f"{rank.cell:22} {rank.arm:28} {1e3 * rank.seconds:9.3f} ms  {spread}{alike}")
    for note in (*found.notes, *(f"no account of {text}" for text in found.failed)):
        print(f"  {note}")


def read(store: Path) -> dict[str, Item]:
    """What was measured; a line cut short by a kill is dropped, and the file mended. Failures of a cell of which nothing was measured are
    tried again: it was the machine then, and no configuration."""
    if not store.is_file():
        return {}
    found = []
    for line in store.read_bytes().splitlines():
        try:
            found.append(msgspec.json.decode(line, type=Item))
        except msgspec.DecodeError:
            break
    measured = {item.cell for item in found if item.account is not None}
    found = [item for item in found if item.account is not None or item.cell in measured]
    store.write_bytes(b"".join(msgspec.json.encode(item) + b"\n" for item in found))
    return {item.key: item for item in found}


def _cells(text: str, phase: str) -> list[Cell]:
    return [Cell(phase, int(c), int(b)) for c, _, b in (pair.partition("x") for pair in text.split(",") if pair)]


def _said(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="llama-3.1-8b-16")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--cells", default="8192x8,32768x4,131072x1,1024x1")
    parser.add_argument("--prefill", default="")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--arms", default="")
    parser.add_argument("--seconds", type=float, default=0.0, help="begin no account after so long; 0: no end")
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds of one account at most")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--fresh", action="store_true")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
