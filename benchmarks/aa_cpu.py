"""A/A and power on the CPU: how often the judge keeps a change that does nothing, and one that is truly 5 % faster.

    python benchmarks/aa_cpu.py [--noops 200] [--gains 40] [--renames 10] [--full 30] [--seed 1] [--fresh]

One task with one timed case, a row softmax. Every decision is CpuJudge.evaluate's. No-ops (noops.py) have other machine code than the
champion and than each other and do the same work; renames must be caught before anything is timed. For a gain the champion computes 21
rows for every 20, and the candidate 20: the ratio of work is 1.05, counted. The first `--full` no-ops are measured on, whatever was
decided, until each has the 15 rounds of a keep (1 screen, 8 test, 6 confirm).

Killed, it goes on where it was. It writes to benchmarks/results:

    aa_cpu.jsonl            every finished item, with its rounds
    aa_cpu.json             the summary
    aa_cpu_rounds.json      no-ops with their full rounds, for resample.py: how many rounds there are did not depend on what they showed
    aa_cpu_all_rounds.json  every no-op with two rounds or more, as decided; those that the screen ended have one and are missing

Bars: at most 1 no-op kept, at least 38 of 40 gains kept, every rename caught, nothing rejected. Exit 1 when one is missed. Run it on an
idle machine.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import workbench
from msgspec import Struct
from msgspec.structs import replace
from noops import KINDS, change, extra, renamed
from resample import Evaluation, Recording
from shapes import Shape, computed, source
from workbench import About, Bar, Store, candidate

from keepfast.errors import MachineError
from keepfast.judge.builder import Built
from keepfast.judge.decide import RULE, false_keep, mde
from keepfast.judge.judge import CpuJudge
from keepfast.model import Calibration, Candidate, Estimate, Kind, Phase, Reason, Round, Verdict, percent
from keepfast.stats import median
from keepfast.walls.base import Walls

ROWS, COLUMNS = 160, 1024
FULL = (Phase.SCREEN,) * RULE.screen + (Phase.TEST,) * RULE.test_most + (Phase.CONFIRM,) * RULE.confirm
DRAWS = 30  # of one kind, until its code is new; then three kinds are taken together
TRIES = 3  # of a decision that the machine spoiled
MOST_NOOPS_KEPT, LEAST_GAINS_KEPT = 1, 0.95


class Item(Struct, frozen=True):
    """One decision. `rounds` without their blocks; `extra_rounds` are those measured on after it."""

    key: str
    group: str  # rename | noop | gain
    change: str
    kind: Kind
    reason: Reason
    detail: str
    seconds: float
    code: str
    calibration: Calibration
    rounds: tuple[Round, ...] = ()
    gain: Estimate | None = None
    rows: tuple[int, int] = (0, 0)  # that candidate and champion compute in one call


class Summary(Struct, frozen=True):
    about: About
    task: str
    seed: int
    calibration: Calibration
    mde: float
    expected_false_keep: float
    noops: dict[str, int]  # verdicts, by reason
    gains: dict[str, int]
    renames: dict[str, int]
    kinds: dict[str, int]  # no-ops, by kind of change
    kept_noops: tuple[str, ...]
    lost_gains: tuple[str, ...]
    gain_median_percent: float | None
    seconds_per_noop: float | None
    bars: tuple[Bar, ...]


class Lab:
    """The judge with a listener on its rounds, and the record of what is finished."""

    def __init__(self, judge: CpuJudge, store: Store) -> None:
        self.judge, self.store = judge, store
        self.heard: list[Round] = []
        self.champion = candidate(source(Shape()))
        self.calibration = workbench.begin(judge, self.champion, store)
        said = judge.trial.progress

        def listen(phase: Phase, made: Round) -> None:
            self.heard.append(plain(made))
            said(phase, made)

        judge.trial.progress = listen

    def code(self, made: Candidate) -> str:
        """Hash of the machine code, building it now; evaluate() then finds it built."""
        found = self.judge.arms.build(made, self.judge.arms.dtypes)
        if not isinstance(found, Built):
            raise MachineError(f"a kernel that should compile does not: {found.detail}")
        return found.code_hash

    def decide(self, item: Item, made: Candidate, against: Candidate) -> Item:
        """The judge's verdict on `made`, finished earlier or now. What the machine spoils is tried again, and then not stored."""
        if found := self.store.find(item.key, Item):
            return found
        for _ in range(TRIES):
            verdict = self.judge.evaluate(made, against, ())
            if verdict.kind is not Kind.VOID:
                break
        self.calibration = self.judge.calibrated()
        done = filled(item, verdict, self.calibration)
        if verdict.kind is not Kind.VOID:
            self.store.add(item.key, done)
            workbench.remember(self.store, self.calibration)
        return done

    def measure_on(self, item: Item, made: Candidate) -> tuple[Round, ...]:
        """All rounds of a keep: those that the decision took, and fresh ones for the rest, under the names of the missing phases.

        Empty when the machine was not fit for it; the next start tries again.
        """
        had = Counter(r.phase for r in item.rounds)
        missing = [phase for phase in dict.fromkeys(FULL) for _ in range(FULL.count(phase) - had[phase])]
        key = f"full {item.key}"
        if not missing:
            return item.rounds
        if (found := self.store.find(key, tuple[Round, ...])) is None:
            self.heard.clear()
            try:
                self.judge.compare(made, "start", len(missing), False)
            except MachineError as error:
                print(f"  not measured on: {error.what}", file=sys.stderr)
                return ()
            found = tuple(replace(r, phase=phase) for r, phase in zip(self.heard, missing, strict=True))
            self.store.add(key, found)
        return item.rounds + found


def plain(made: Round) -> Round:
    """Without the single pairs of windows, which nobody reads again."""
    return replace(made, cases=tuple(replace(c, blocks=()) for c in made.cases))


def filled(item: Item, verdict: Verdict, calibration: Calibration) -> Item:
    return replace(
        item,
        kind=verdict.kind,
        reason=verdict.reason,
        detail=verdict.detail,
        seconds=verdict.seconds,
        code=verdict.code,
        calibration=calibration,
        rounds=tuple(plain(r) for r in verdict.rounds),
        gain=verdict.gain,
    )


# --------------------------------------------------------------------------------------------- what is judged


def blank(lab: Lab, group: str, key: str, words: str) -> Item:
    return Item(key, group, words, Kind.VOID, Reason.MACHINE, "not judged", 0.0, "", lab.calibration)


def renames(lab: Lab, count: int, seed: int) -> Iterator[Item]:
    for n in range(count):
        made = candidate(renamed(source(Shape()), Random(f"rename {seed} {n}")), n=n + 1)
        yield lab.decide(blank(lab, "rename", f"rename {n} {made.tree[:12]}", "names and comments"), made, lab.champion)


def new_code(lab: Lab, n: int, seed: int, seen: set[str]) -> tuple[str, Candidate]:
    """A no-op with machine code that neither the champion nor an earlier no-op has: its kind, and the candidate."""
    kind, draw = KINDS[n % len(KINDS)], 0
    while True:
        made = candidate(source(change(kind, Random(f"no-op {seed} {n} {draw}"))), n=n + 1)
        code = lab.code(made)
        if code not in seen:
            seen.add(code)
            return kind, made
        draw += 1
        kind = "mixture" if draw >= DRAWS else kind


def noops(lab: Lab, count: int, seed: int) -> Iterator[tuple[Item, Candidate]]:
    seen = {lab.code(lab.champion)}
    for n in range(count):
        kind, made = new_code(lab, n, seed, seen)
        yield lab.decide(blank(lab, "noop", f"noop {n} {made.tree[:12]}", kind), made, lab.champion), made


def gains(lab: Lab, count: int, seed: int) -> Iterator[Item]:
    """Pairs in a shape of their own: the champion computes 21 rows for 20, at a place of its own, the candidate 20."""
    for n in range(count):
        chance = Random(f"gain {seed} {n}")
        fast = change("mixture", chance)
        slow = replace(fast, extra=extra(chance))
        made, against = candidate(source(fast), n=2 * n + 2), candidate(source(slow), n=2 * n + 1)
        words = f"{slow.extra.place} {slow.extra.turn} into {slow.extra.into}" if slow.extra else ""
        item = blank(lab, "gain", f"gain {n} {made.tree[:12]} {against.tree[:12]}", words)
        yield lab.decide(replace(item, rows=(computed(fast, ROWS), computed(slow, ROWS))), made, against)


# --------------------------------------------------------------------------------------------- bars, summary


def bars(wanted: dict[str, int], groups: dict[str, list[Item]]) -> tuple[Bar, ...]:
    noops, gains, renames = (groups[name] for name in ("noop", "gain", "rename"))
    kept, won = sum(i.kind is Kind.KEEP for i in noops), sum(i.kind is Kind.KEEP for i in gains)
    least = math.ceil(LEAST_GAINS_KEPT * wanted["gain"])
    caught = sum(i.reason is Reason.SAME_CODE and not i.rounds for i in renames)
    odd = [i for group in groups.values() for i in group if i.kind not in (Kind.KEEP, Kind.REVERT)]
    early = sum(not i.rounds for i in (*noops, *gains))
    share = {i.rows[1] / i.rows[0] for i in gains}
    return (
        Bar("no-ops kept", f"at most {MOST_NOOPS_KEPT} of {wanted['noop']}", f"{kept} of {len(noops)}", kept <= MOST_NOOPS_KEPT),
        Bar("gains of 5 % kept", f"at least {least} of {wanted['gain']}", f"{won} of {len(gains)}", won >= least),
        Bar("work of champion over candidate", "1.05", ", ".join(f"{s:.4f}" for s in sorted(share)) or "-", share <= {1.05}),
        Bar("renames caught untimed", f"{wanted['rename']}", f"{caught} of {len(renames)}", caught == wanted["rename"]),
        Bar("neither kept nor reverted", "0", said(odd), not odd),
        Bar("no-ops and gains not timed", "0", f"{early}", not early),
    )


def said(items: Sequence[Item]) -> str:
    return f"{len(items)}: " + "; ".join(f"{i.key}: {i.reason}, {i.detail}" for i in items[:3]) if items else "0"


def reasons(items: Sequence[Item]) -> dict[str, int]:
    return dict(sorted(Counter(i.reason.value for i in items).items()))


def summary(about: About, lab: Lab, seed: int, wanted: dict[str, int], groups: dict[str, list[Item]]) -> Summary:
    noops, gains = groups["noop"], groups["gain"]
    claimed = [percent(i.gain.d) for i in gains if i.gain]
    return Summary(
        about=about,
        task=lab.judge.task.hash,
        seed=seed,
        calibration=lab.calibration,
        mde=mde(lab.calibration),
        expected_false_keep=false_keep(lab.calibration),
        noops=reasons(noops),
        gains=reasons(gains),
        renames=reasons(groups["rename"]),
        kinds=dict(Counter(i.change for i in noops)),
        kept_noops=tuple(f"{i.key}, {i.change}: {i.detail}" for i in noops if i.kind is Kind.KEEP),
        lost_gains=tuple(f"{i.key}, {i.change}: {i.reason}, {i.detail}" for i in gains if i.kind is not Kind.KEEP),
        gain_median_percent=median(claimed) if claimed else None,
        seconds_per_noop=median([i.seconds for i in noops]) if noops else None,
        bars=bars(wanted, groups),
    )


def tell(found: Summary) -> None:
    c = found.calibration
    print(f"\nnoise    SD between rounds {c.sigma:.3%}, layout {c.layout:.3%}, offset {c.offset:+.3%}, margin {c.margin:.3%}")
    print(f"printed  smallest gain likely seen {found.mde:.2%}, false keeps expected {found.expected_false_keep:.5f}")
    for name, counts in (("no-ops", found.noops), ("gains", found.gains), ("renames", found.renames)):
        print(f"{name:<8} {', '.join(f'{n} {reason}' for reason, n in counts.items()) or 'none'}")
    for line in (*found.kept_noops, *found.lost_gains):
        print(f"         {line}")
    if found.gain_median_percent is not None:
        print(f"claimed  {found.gain_median_percent:+.2f} %, median over the gains that were confirmed or not; true is +5 %")


def recordings(lab: Lab, results: Path, noops: Sequence[Item], full: dict[str, tuple[Round, ...]]) -> None:
    """The two recordings for resample.py."""
    machine, task = lab.judge.bench.machine, f"{lab.judge.task.title} ({lab.judge.task.hash[:12]})"
    whole = [Evaluation(i.calibration, full[i.key], i.change) for i in noops if i.key in full]
    every = [Evaluation(i.calibration, full.get(i.key, i.rounds), i.change) for i in noops if len(i.rounds) >= 2 or i.key in full]
    for name, evaluations in (("aa_cpu_rounds.json", whole), ("aa_cpu_all_rounds.json", every)):
        if evaluations:
            workbench.write(results / name, Recording(machine, tuple(evaluations), task))


# --------------------------------------------------------------------------------------------- all of it


class Progress:
    """One line for each item."""

    def __init__(self) -> None:
        self.items: dict[str, list[Item]] = {"rename": [], "noop": [], "gain": []}

    def __call__(self, item: Item) -> None:
        self.items[item.group].append(item)
        screen = f"{percent(item.rounds[0].d):+6.2f} %" if item.rounds else ""
        print(f"  {item.key:<40} {item.change:<18} {item.seconds:5.1f} s  {screen:>9}  {item.reason} {item.detail}", flush=True)


def judged(lab: Lab, wanted: dict[str, int], full: int, seed: int) -> tuple[dict[str, list[Item]], dict[str, tuple[Round, ...]]]:
    progress, rounds = Progress(), dict[str, tuple[Round, ...]]()
    for item in renames(lab, wanted["rename"], seed):
        progress(item)
    for item, made in noops(lab, wanted["noop"], seed):
        progress(item)
        if len(rounds) < full and item.kind in (Kind.KEEP, Kind.REVERT) and (all_of_it := lab.measure_on(item, made)):
            rounds[item.key] = all_of_it
    for item in gains(lab, wanted["gain"], seed):
        progress(item)
    return progress.items, rounds


def run(given: Given) -> int:
    walls = Walls.detect()
    about = workbench.about(walls.strength)
    workbench.introduce(about)
    with workbench.room() as room:
        task = workbench.make_task(room / "softmax", source(Shape()), rows=ROWS, columns=COLUMNS)
        store = Store(given.results / "aa_cpu.jsonl", about.machine.hash, task.hash, fresh=given.fresh)
        (room / "builds").mkdir(mode=0o711)
        lab = Lab(workbench.make_judge(task, walls, room / "builds"), store)
        wanted = {"rename": given.renames, "noop": given.noops, "gain": given.gains}
        groups, full = judged(lab, wanted, given.full, given.seed)
        found = summary(workbench.finished(about), lab, given.seed, wanted, groups)
        workbench.write(given.results / "aa_cpu.json", found)
        recordings(lab, given.results, groups["noop"], full)
        tell(found)
        enough = Bar(
            "no-ops with full rounds", f"{min(given.full, given.noops)}", f"{len(full)}", len(full) >= min(given.full, given.noops)
        )
        return workbench.settled((*found.bars, enough))


class Given(Struct, frozen=True):
    """The command line."""

    noops: int
    gains: int
    renames: int
    full: int
    seed: int
    fresh: bool
    results: Path


def main(arguments: list[str] | None = None) -> int:
    parser = workbench.arguments(__doc__)
    for name, count in (("noops", 200), ("gains", 40), ("renames", 10), ("full", 30), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=count)
    return workbench.called(parser, arguments, Given, run)


if __name__ == "__main__":
    sys.exit(main())
