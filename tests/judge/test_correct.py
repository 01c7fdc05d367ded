"""The rung `correct` on real kernels inside the walls: each way of being wrong gets its own reason."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pytest
from msgspec import Struct

from keepfast.judge import correct
from keepfast.judge.arms import Arms
from keepfast.judge.channel import Failure
from keepfast.judge.contents import Library
from keepfast.judge.correct import Checker, Correct
from keepfast.judge.oracle_records import Job
from keepfast.judge.reference import Reference
from keepfast.judge.sets import Draw
from keepfast.model import Reason, Task
from keepfast.walls.base import Walls
from tests.judge import tasks
from tests.judge.tasks import kernel

EXPECTED = {"main": 1e6, "odd": 1e6}  # ns; so that a hang is one after a second
SQUARE = "    for (int64_t i = 0; i < n; i++)\n        out[i] = x[i] * x[i] + 1.0f;"
NOWHERE = "static int *volatile nowhere;"
ALARM = """#include <signal.h>
#include <sys/time.h>
static const float *from;
static float *to;
static int64_t count;
static void ring(int number) { LATER }
static void later(const float *x, float *out, int64_t n)
{
    struct itimerval soon = {{0, 0}, {0, 50000}};
    from = x, to = out, count = n;
    signal(SIGALRM, ring);
    setitimer(ITIMER_REAL, &soon, 0);
}
"""


class Bench(Struct):
    """A task with draws, and what is needed to check a kernel on them."""

    task: Task
    arms: Arms
    checker: Checker
    draws: Sequence[Sequence[Draw]]

    def check(self, code: str) -> Correct | Failure:
        made = tasks.candidate(code)
        built = self.arms.build(made, self.arms.dtypes)
        if isinstance(built, Failure):
            pytest.fail(built.detail)
        return self.checker.check(self.arms.spec(made), self.draws, EXPECTED)

    def failure(self, code: str) -> Failure:
        found = self.check(code)
        assert isinstance(found, Failure), found
        return found


def bench(task: Task, walls: Walls, library: Library, builds: Path) -> Bench:
    reference, seeds = Reference(task), 3
    draws = reference.draws([Job("make", case, (5, i)) for case in task.cases for i in range(seeds)])
    arms = Arms(task, walls, builds)
    arms.dtypes = {s.name: s.dtype for s in draws[0].layout.slots}
    grouped = [draws[i : i + seeds] for i in range(0, len(draws), seeds)]
    return Bench(task, arms, Checker(walls, library, reference, Random(6)), grouped)


@pytest.fixture(scope="module")
def builds(walls: Walls) -> Iterator[Path]:
    made = walls.folder()
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def square(walls: Walls, library: Library, builds: Path, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return bench(tasks.write(tmp_path_factory.mktemp("square")), walls, library, builds)


def test_a_right_kernel_passes_every_case(square: Bench) -> None:
    found = square.check(tasks.RIGHT)
    assert isinstance(found, Correct), found
    assert [c.case for c in found.cases] == ["main", "odd"]
    for case in found.cases:
        assert 0 < case.call_ns < 1e9
        ((name, budget),) = case.budgets
        assert name == "out"
        assert 0 < budget.rms < 1e-4
    assert found.facts[0].value.startswith("2 cases x 3 draws")


WRONG = {
    "a value": (SQUARE.replace("1.0f", "1.5f"), "", Reason.WRONG, "case main: out["),
    "the tail": (SQUARE.replace("i < n", "i < n / 4 * 4"), "", Reason.WRONG, "case odd: out["),
    "never written": (SQUARE.replace("i < n", "i < n / 2"), "", Reason.WRONG, "words were never written"),
    "an old answer": (
        f"    if (seen != n)\n{SQUARE}\n    else\n        for (int64_t i = 0; i < n; i++) out[i] = old[i];\n"
        "    if (seen != n)\n        for (int64_t i = 0; i < n; i++) old[i] = out[i];\n    seen = n;",
        "static float old[8192];\nstatic int64_t seen;",
        Reason.STATEFUL,
        "the old answer came back",
    ),
    "varies": (
        f"{SQUARE}\n    if (++calls > 3)\n        out[3] += 0.01f;",
        "static int calls;",
        Reason.UNSTABLE,
        "differs between two launches",
    ),
    "a return code": (f"{SQUARE}\n    if (n == 7)\n        return 3;", "", Reason.RETURN_CODE, "case odd: returned 3"),
    "after its end": (f"{SQUARE}\n    out[n] = 0;", "", Reason.OUT_OF_BOUNDS, "case main: wrote beside `out`"),
    "before its start": (f"{SQUARE}\n    out[-1] = 0;", "", Reason.OUT_OF_BOUNDS, "wrote beside `out`"),
    "to an input": (f"{SQUARE}\n    ((float *)x)[0] = 0;", "", Reason.CRASH, "wrote to a read-only argument (byte 0 of the memory of `x`)"),
    "a null pointer": (f"{SQUARE}\n    *nowhere = 1;", NOWHERE, Reason.CRASH, "case main: SIGSEGV: used a null pointer"),
    "an exit": (f"{SQUARE}\n    exit(0);", "#include <stdlib.h>", Reason.CRASH, "a kernel has to return"),
    "endless": ("    for (volatile int go = 1; go;)\n        ;", "", Reason.HANG, "case main: no answer to call within 1.0 s; it was"),
    "asleep": ("    sleep(1000);", "#include <unistd.h>", Reason.HANG, "it was waiting"),
    "while loading": (
        SQUARE,
        f"{NOWHERE}\n__attribute__((constructor)) static void early(void) {{ *nowhere = 1; }}",
        Reason.CRASH,
        "SIGSEGV",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_each_way_of_being_wrong_has_its_reason(square: Bench, name: str) -> None:
    body, before, reason, said = WRONG[name]
    found = square.failure(kernel(body, before))
    assert (found.reason, found.cheat) == (reason, reason is Reason.STATEFUL)
    assert said in found.detail
    assert found.detail.isprintable()


def test_a_result_that_is_written_after_the_return_is_late(square: Bench) -> None:
    alarm = ALARM.replace("LATER", "for (int64_t i = 0; i < count; i++) to[i] = from[i] * from[i] + 1.0f;")
    found = square.failure(kernel("    later(x, out, n);", alarm))
    assert (found.reason, found.cheat) == (Reason.LATE, True)
    assert "`out` was still being written" in found.detail


def test_a_result_that_changes_after_the_return_is_late(square: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(correct, "SETTLE_S", 0.2)  # the alarm is late enough never to ring within a call, busy as the machine may be
    alarm = ALARM.replace("LATER", "to[0] = 0;")
    found = square.failure(kernel(f"{SQUARE}\n    later(x, out, n);", alarm))
    assert (found.reason, found.cheat) == (Reason.LATE, True)
    assert found.detail == "case main: the output changed after the call had returned"


def test_the_tasks_own_compare_has_the_last_word(tmp_path: Path, walls: Walls, library: Library, builds: Path) -> None:
    own = (
        "\n\ndef compare(case, inputs, got, expected):\n    return None if abs(got['out'] - expected['out']).max() < 1 else 'too far off'\n"
    )
    made = bench(tasks.write(tmp_path, reference=tasks.REFERENCE + own), walls, library, builds)
    assert isinstance(made.check(kernel(SQUARE.replace("1.0f", "1.5f"))), Correct)
    assert made.failure(kernel(SQUARE.replace("1.0f", "2.5f"))).reason is Reason.WRONG


def test_arguments_in_place(tmp_path: Path, walls: Walls, library: Library, builds: Path) -> None:
    reference = tasks.REFERENCE.replace("return x * x + 1", "x *= 2\n    return x.sum(keepdims=True)")
    made = bench(tasks.write(tmp_path, text=tasks.toml("twice(Tensor(a!) x) -> Tensor"), reference=reference), walls, library, builds)
    head = tasks.HEAD + "int kernel(float *x, float *out, int64_t n, void *stream)\n{\n    double sum = 0;\n    (void)stream;\n"
    loop = "    for (int64_t i = 0; i < n; i++)\n        sum += x[i] {} 2;\n    *out = (float)sum;\n    return 0;\n}}\n"
    assert isinstance(made.check(head + loop.replace("{}", "*=").replace("}}", "}")), Correct)
    untouched = made.failure(head + loop.replace("{}", "*").replace("}}", "}"))
    assert untouched.reason is Reason.WRONG
    assert untouched.detail.startswith("case main: x[")


def test_a_python_baseline_is_checked_alike(square: Bench) -> None:
    folder = Path(square.task.folder) / "baselines"
    folder.mkdir()
    (folder / "plain.py").write_text("import numpy as np\n\ndef kernel(x, out):\n    np.add(x * x, 1, out=out)\n")
    (folder / "wrong.py").write_text("def kernel(x, out):\n    out[:] = x\n")
    from keepfast.task.load import load

    arms = Arms(load(Path(square.task.folder)), square.arms.walls, square.arms.folder)
    specs = [arms.baseline(name, square.arms.dtypes) for name in ("plain", "wrong")]
    found = [square.checker.check(s, square.draws, EXPECTED) for s in specs if not isinstance(s, Failure)]
    assert isinstance(found[0], Correct), found[0]
    assert isinstance(found[1], Failure)
    assert found[1].reason is Reason.WRONG
