"""Records built by hand: a small run with every kind of verdict. Times are fixed, so what is printed is fixed."""

from __future__ import annotations

import math

from keepfast.model import (
    SENTENCES,
    BaselineResult,
    Budget,
    Build,
    Calibration,
    Case,
    CaseRound,
    CaseTime,
    Direct,
    Estimate,
    Experiment,
    Fact,
    Goal,
    Idea,
    Limit,
    Machine,
    Phase,
    Reason,
    Round,
    Rules,
    Run,
    Rung,
    Signature,
    Task,
    Tolerance,
    Verdict,
)
from keepfast.report.book import Book

BEGAN = 1764542460.0  # 30 Nov 2025 22:41 UTC
MACHINE = Machine(
    cpu="Virtual CPU", cores=2, kernel="6.1.0", compiler="gcc 12.2", walls="walls", ceilings=(("copy_16MB_GBps", 18.9),), hash="m" * 64
)
SIGNATURE = Signature(name="softmax", args=(), returns=(), text="softmax(Tensor x) -> Tensor")


def estimate(percent: float, half: float = 0.7, rounds: int = 6, opponent: str = "experiment 1", sd: float = 0.006) -> Estimate:
    """A gain of `percent` with an interval of plus and minus `half` per cent points."""
    d, low, high = (-math.log1p(p / 100) for p in (percent, percent + half, percent - half))
    return Estimate(d=d, low=low, high=high, sd=sd, rounds=rounds, opponent=opponent)


def case_time(name: str, percent: float, subject_ns: float, opponent: str = "experiment 1", limit_ns: float | None = None) -> CaseTime:
    e = estimate(percent, opponent=opponent)
    return CaseTime(case=name, estimate=e, subject_ns=subject_ns, opponent_ns=subject_ns * e.speedup, limit_ns=limit_ns)


def rungs(failed: str = "") -> tuple[Rung, ...]:
    facts = {
        "guard": (Fact("files", "1"), Fact("lines", "+14 -2")),
        "build": (),
        "correct": (Fact("cases", "6"), Fact("sets", "4")),
        "time": (),
    }
    seconds = {"guard": 0.01, "build": 0.21, "correct": 0.6, "time": 11.2}
    out = []
    for name, said in facts.items():
        out.append(Rung(name=name, ok=name != failed, seconds=seconds[name], facts=said))
        if name == failed:
            break
    return tuple(out)


def verdict(reason: Reason, **more: object) -> Verdict:
    return Verdict(kind=SENTENCES[reason][0], reason=reason, walls="walls", mde=0.0139, false_keep=0.0004, **more)  # type: ignore[arg-type]


def experiment(n: int, title: str, v: Verdict, seconds: float, **more: object) -> Experiment:
    fields: dict[str, object] = {"proposer": "deck", "source": f"deck/{n:03d}.patch", "idea": None, "parent": 1, "commit": f"{n:040x}"}
    fields |= more
    return Experiment(n=n, title=title, verdict=v, seconds=seconds, started=BEGAN + 20.0 * n, tree=f"{n:064x}", **fields)  # type: ignore[arg-type]


def round_of(phase: Phase, percent: float) -> Round:
    d = -math.log1p(percent / 100)
    case = CaseRound(case="n4096", d=d, subject_ns=6.37e6, opponent_ns=9.03e6, blocks=(d - 0.002, d, d + 0.002))
    return Round(phase=phase, d=d, cases=(case,), sentinel_ns=1.0e6, seconds=1.1)


def experiments() -> tuple[Experiment, ...]:
    start_case = CaseTime("n4096", estimate(0.0, opponent="itself"), subject_ns=9.02e6, opponent_ns=9.02e6, limit_ns=2.0e6)
    kept = verdict(
        Reason.FASTER,
        rungs=rungs(),
        gain=estimate(41.8),
        screen=-math.log1p(0.40),
        test=estimate(41.5, half=1.2, rounds=4),
        cases=(case_time("n4096", 41.8, 6.37e6, limit_ns=2.0e6),),
        rounds=(round_of(Phase.SCREEN, 40.0), round_of(Phase.CONFIRM, 41.9)),
        seconds=11.9,
        code="c" * 64,
    )
    again = verdict(
        Reason.FASTER,
        rungs=rungs(),
        gain=estimate(62.4, half=1.1, opponent="experiment 2"),
        screen=-math.log1p(0.61),
        test=estimate(62.1, half=2.0, rounds=4, opponent="experiment 2"),
        cases=(case_time("n4096", 62.4, 3.92e6, "experiment 2", limit_ns=2.0e6),),
        seconds=13.8,
    )
    return (
        experiment(
            1, "the plain kernel", verdict(Reason.START, cases=(start_case,), seconds=3.0), 3.0, parent=0, proposer="start", source=""
        ),
        experiment(2, "one pass for max and sum", kept, 12.0, idea=1),
        experiment(3, "rename and reorder", verdict(Reason.NO_GAIN, rungs=rungs(), screen=0.002, seconds=2.0), 2.0, parent=2),
        experiment(
            4,
            "the last column is never written",
            verdict(Reason.WRONG, rungs=rungs("correct"), detail="row 17, column 1023: got 0.0, expected 3.1e-04", seconds=0.4),
            0.4,
            parent=2,
        ),
        experiment(
            5, "vector types", verdict(Reason.BUILD, rungs=rungs("build"), detail="kernel.c:31: 'j' undeclared", seconds=0.2), 0.2, parent=2
        ),
        experiment(
            6,
            "remember the last row",
            verdict(
                Reason.STATEFUL,
                rungs=rungs("correct"),
                detail="case n4096, set 3: new contents in a buffer seen before gave the previous answer",
                seconds=1.1,
                cheat=True,
            ),
            1.1,
            parent=2,
            idea=2,
        ),
        experiment(7, "exp by polynomial, 8 lanes", again, 14.0, parent=2),
        experiment(
            8,
            "BLOCK = 8",
            verdict(
                Reason.AMBIGUOUS, rungs=rungs(), screen=-0.01, test=estimate(0.4, half=1.0, rounds=8, opponent="experiment 7"), seconds=9.0
            ),
            9.1,
            parent=7,
            proposer="search",
            source="",
            tunables=(("BLOCK", 8), ("UNROLL", 4)),
        ),
        experiment(
            9,
            "skip the sum",
            verdict(Reason.TOO_FAST, rungs=rungs(), detail="case n4096: 1.21 ms, the limit is 2.00 ms", seconds=4.0, cheat=True),
            4.1,
            parent=7,
        ),
        experiment(10, "the same loop", verdict(Reason.SAME_CODE, rungs=rungs()[:2], seconds=0.2), 0.2, parent=7),
        experiment(11, "prefetch", verdict(Reason.MACHINE, rungs=rungs()[:3], detail="steal time 12 %", seconds=5.0), 5.0, parent=7),
    )


def directs() -> tuple[Direct, ...]:
    start = estimate(131.0, half=3.0, opponent="start")
    return (
        Direct(
            n=7, against="start", estimate=start, cases=(case_time("n4096", 131.0, 3.90e6, "start", 2.0e6),), final=True, when=BEGAN + 260
        ),
        Direct(n=7, against="baseline numpy", estimate=estimate(490.0, 10.0, 6, "baseline numpy"), cases=(), final=True, when=BEGAN + 270),
    )


def run(**more: object) -> Run:
    fields: dict[str, object] = {
        "settings": (("proposer", "deck,search"), ("goal", "2.2"), ("over", "start"), ("experiments", "40")),
        "state": "goal",
    }
    fields |= more
    return Run(
        id="softmax-1",
        task="softmax-rows",
        task_hash="t" * 64,
        task_folder="/home/me/tasks/softmax rows",
        branch="keepfast/softmax-1",
        base="b" * 40,
        head="a" * 40,
        seed=7,
        started=BEGAN,
        machine=MACHINE,
        **fields,  # type: ignore[arg-type]
    )


def calibration() -> Calibration:
    return Calibration(
        machine="m" * 64,
        sigma=0.006,
        offset=0.0001,
        layout=0.0056,
        case_sigma=(("n4096", 0.006),),
        rounds=10,
        sentinel_ns=1e6,
        block_ms=3.0,
        when=BEGAN,
        layouts=4,
    )


def task() -> Task:
    cases = (Case("n4096", (("m", 64), ("n", 4096))), Case("odd", (("m", 17), ("n", 8192)), use="correct"))
    return Task(
        name="softmax-rows",
        title="row softmax, float32",
        folder="/home/me/tasks/softmax rows",
        root="/home/me/tasks/softmax rows",
        signature=SIGNATURE,
        languages=("c",),
        entry_path="kernel/kernel.c",
        entry_symbol="kernel",
        editable=("kernel/**",),
        axes=("m", "n"),
        cases=cases,
        arguments=(),
        goal=Goal(speedup=2.2, over="start"),
        budget=Budget(experiments=40),
        rules=Rules(),
        limit=Limit(bytes="8*m*n"),
        build=Build(),
        tolerance=Tolerance(),
        baselines=(),
        tunables="",
        threads=1,
        oracle="reference",
        hash="t" * 64,
    )


def baselines() -> tuple[BaselineResult, ...]:
    return (
        BaselineResult("numpy", True, "", estimate(-61.0, 0.5, 4, "start")),
        BaselineResult("fast", False, "wrong result in case odd", None),
    )


def ideas() -> tuple[Idea, ...]:
    return (
        Idea(1, "one pass instead of three", "human", "kept"),
        Idea(2, "avoid recomputing rows", "human", "dead", "rows are new in every call"),
    )


def book(**more: object) -> Book:
    fields: dict[str, object] = {
        "run": run(),
        "experiments": experiments(),
        "directs": directs(),
        "baselines": baselines(),
        "calibration": calibration(),
        "ideas": ideas(),
        "task": task(),
    }
    return Book(**(fields | more))  # type: ignore[arg-type]


def many(count: int) -> tuple[Experiment, ...]:
    """A long run: every 50th a keep, suspects and rejects in between."""
    base = experiments()
    kinds = [base[2], base[3], base[4], base[7], base[5], base[9]]
    out = [base[0]]
    champion = 1
    for n in range(2, count + 1):
        parent, model = champion, kinds[n % len(kinds)]
        v = model.verdict
        if n % 50 == 0:
            v, champion = verdict(Reason.FASTER, rungs=rungs(), gain=estimate(1.0, 0.3, 6, f"experiment {parent}"), seconds=3.0), n
        elif n % 97 == 0:
            v = base[8].verdict
        out.append(experiment(n, f"change number {n}", v, 3.0, parent=parent))
    return tuple(out)
