"""[rules] on a CPU: each is held against what was built, with a kernel that breaks it and one that looks as if it did."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from keepfast.errors import TaskError
from keepfast.judge import builder, elf, rules
from keepfast.judge.builder import Built
from keepfast.judge.contents import Library
from keepfast.judge.endings import Failure
from keepfast.judge.judge import Bench, CpuJudge
from keepfast.model import Fact, File, Machine, Reason, Task, Verdict
from keepfast.task.load import load
from keepfast.walls.base import Walls
from tests.judge import tasks
from tests.judge.made_rounds import calibrated
from tests.judge.tasks import kernel

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
LOOP = "    for (int64_t i = 0; i < n; i++)\n        out[i] = x[i] * x[i] + 1.0f;"
DTYPES = {"x": "float32", "out": "float32"}
Judged = Callable[[str, str], "Failure | tuple[Fact, ...]"]


@pytest.fixture
def judged(tmp_path: Path, walls: Walls, reachable: Path) -> Judged:
    """What the rules say of a source that was built under them."""

    def judge(ruled: str, code: str) -> Failure | tuple[Fact, ...]:
        task = tasks.write(tmp_path, text=tasks.toml(extra=f"[rules]\n{ruled}\n{tasks.GOAL}"), code=code)
        files = (File(task.entry_path, code.encode()),)
        built = builder.build(walls, task, files, DTYPES, reachable / "kernel.so")
        assert isinstance(built, Built), built
        return rules.check(task, files, built.path)

    return judge


# --------------------------------------------------------------------------------------------- no_state

STATEFUL = {
    "a memo of the whole output": (
        "#include <string.h>\nstatic float memo[4096]; static int known;",
        "if (known++) { memcpy(out, memo, 4 * n); return 0; }",
    ),
    "a counter of one byte": ("static unsigned char calls;", "calls++; if (calls > 200) out[0] = 0;"),
    "a static inside the function": ("", "static int64_t calls = 7; if (++calls < 0) return 1;"),
    "a thread-local": ("static __thread int calls;", "if (++calls < 0) return 1;"),
    "a thread-local that is set": ("static __thread int calls = 3;", "if (++calls < 0) return 1;"),
    "an array with a section of its own": ('__attribute__((section(".mine"))) static int calls = 3;', "if (++calls < 0) return 1;"),
    "a pointer that is kept": ("#include <stdlib.h>\nstatic float *kept;", "if (!kept) kept = malloc(16); kept[0] = x[0];"),
    "assembly without a name": ('__asm__(".bss\\n.Lmine: .skip 4\\n.text\\n");', ""),
}  # fmt: skip
STATELESS = {
    "nothing": ("", ""),
    "tables of numbers": ("static const float table[4] = {1, 2, 3, 4};", "if (table[n & 3] < 0) return 1;"),
    "tables of addresses": ('static const char *const names[] = {"a", "b"};', "if (names[n & 1][0] == 0) return 1;"),
    "memory that is given back": ("#include <stdlib.h>", "float *room = malloc(4 * n); if (!room) return 1; room[0] = x[0]; free(room);"),
    "room on the stack": ("#include <string.h>", "float room[64]; memset(room, 0, sizeof room); if (room[n & 63] != 0) return 1;"),
    "mathematics of libm": ("#include <math.h>", "if (expf(x[0]) < 0) return 1;"),
}


@pytest.mark.parametrize("name", STATEFUL)
def test_state_is_seen(judged: Judged, name: str) -> None:
    before, body = STATEFUL[name]
    found = judged("no_state = true", kernel(f"    {body}\n{LOOP}", before))
    assert isinstance(found, Failure)
    assert found.reason is Reason.RULE
    assert "has memory that outlives a call" in found.detail


@pytest.mark.parametrize("name", STATELESS)
def test_what_only_looks_like_state(judged: Judged, name: str) -> None:
    before, body = STATELESS[name]
    assert judged("no_state = true", kernel(f"    {body}\n{LOOP}", before)) == (Fact("no_state", "none"),)


def test_without_the_rule_state_is_left_to_behaviour(judged: Judged) -> None:
    before, body = STATEFUL["a counter of one byte"]
    assert judged("", kernel(f"    {body}\n{LOOP}", before)) == ()


# --------------------------------------------------------------------------------------------- libraries, prepare


def test_a_library_that_is_loaded_by_hand(judged: Judged) -> None:
    code = kernel(f'    if (dlopen("libcblas.so", 2)) return 1;\n{LOOP}', "#include <dlfcn.h>")
    found = judged('library_kernels = "forbidden"', code)
    assert isinstance(found, Failure)
    assert (found.reason, "loads libraries by itself (dlopen" in found.detail) == (Reason.RULE, True)


def test_the_compilers_own_libraries_are_none(judged: Judged) -> None:
    code = kernel(f"    if (expf(x[0]) < 0) return 1;\n{LOOP}", "#include <math.h>")
    assert judged('library_kernels = "forbidden"', code) == (Fact("libraries", "none"),)


def test_a_library_that_it_is_linked_with() -> None:
    ruled = tasks.softmax_task(rules=rules.Rules(library_kernels="forbidden")).rules
    found = rules._foreign(ruled, elf.Contents((), ("cblas_sgemm",), ("libm.so.6", "libopenblas.so.0", "libc.so.6")))
    assert found is not None
    assert "is linked with libopenblas.so.0;" in found.detail


def test_a_prepare_beside_the_entry(judged: Judged) -> None:
    found = judged('prepare = "forbidden"', kernel(LOOP, "int prepare(const float *w)\n{\n    return w != 0;\n}"))
    assert isinstance(found, Failure)
    assert (found.reason, found.detail) == (
        Reason.RULE, "kernel/kernel.c defines `prepare`: the task forbids work on weights outside the call",
    )  # fmt: skip
    honest = kernel(LOOP, "/* prepare(x) is what others do */\nstatic int prepared(int a) { return a; }\nint (*used)(int) = prepared;")
    assert judged('prepare = "forbidden"', honest) == (Fact("prepare", "none"),)


# --------------------------------------------------------------------------------------------- through the judge


def verdict_of(task: Task, walls: Walls, library: Library, builds: Path, code: str) -> Verdict:
    bench = Bench(
        task, walls, Machine("cpu", 2, "6", "gcc", "walls", hash="m"), library, builds, lambda code: None, lambda e: None, Random(7)
    )
    return CpuJudge(bench).ready(tasks.candidate(code, 1), calibrated(sigma=0.001))


def test_a_rule_that_is_broken_is_a_rung_that_fails(tmp_path: Path, walls: Walls, library: Library, reachable: Path) -> None:
    task = tasks.write(tmp_path, text=tasks.toml(extra=f"[rules]\nno_state = true\n{tasks.GOAL}"))
    found = verdict_of(task, walls, library, reachable, kernel(LOOP, "float kept[9]; float *keeper = kept;"))
    assert (found.reason, [r.name for r in found.rungs]) == (Reason.RULE, ["guard", "build", "rules"])
    found = verdict_of(task, walls, library, reachable, tasks.RIGHT)
    assert (found.reason, [r.name for r in found.rungs]) == (Reason.START, ["guard", "build", "rules", "correct"])


def test_what_hides_among_the_loaders_tables_cannot_be_written(tmp_path: Path, walls: Walls, library: Library, reachable: Path) -> None:
    task = tasks.write(tmp_path, text=tasks.toml(extra=f"[rules]\nno_state = true\n{tasks.GOAL}"))
    hidden = kernel(f"    if (++calls < 0) return 1;\n{LOOP}", '__attribute__((section(".got"))) static int calls = 3;')
    assert verdict_of(task, walls, library, reachable, hidden).reason is Reason.CRASH


SUM = """import numpy as np


def inputs(case, rng):
    return {"x": rng.standard_normal(case.n, dtype=np.float32)}


def reference(x):
    return np.cumsum(x)
"""
RUNNING = "    float s = 0;\n    for (int64_t i = 0; i < n; i++) {\n        s += %s;\n        out[i] = s;\n    }"


def reaching(folder: Path, far: int, least: int) -> Task:
    cases = f'[[case]]\nname = "main"\nn = 256\n\n[[case]]\nname = "far"\nn = {far}\nuse = "correct"\n'
    return tasks.write(folder, text=tasks.toml(cases=cases, extra=f"[rules]\nmin_axis = {{ n = {least} }}\n{tasks.GOAL}"), reference=SUM)


def test_a_kernel_for_short_sizes_fails_where_min_axis_asks_for_long_ones(
    tmp_path: Path, walls: Walls, library: Library, reachable: Path
) -> None:
    with pytest.raises(TaskError, match="`min_axis` asks for n = 8192, and the cases end at 1024"):
        reaching(tmp_path, 1024, 8192)
    task = reaching(tmp_path, 8192, 8192)
    short = verdict_of(task, walls, library, reachable, kernel(RUNNING % "i < 1024 ? x[i] : 0"))
    assert (short.reason, "case far" in short.detail) == (Reason.WRONG, True)
    assert verdict_of(task, walls, library, reachable, kernel(RUNNING % "x[i]")).reason is Reason.START


def test_a_kernel_below_the_precision_floor_fails(tmp_path: Path, walls: Walls, library: Library, reachable: Path) -> None:
    task = tasks.write(tmp_path, text=tasks.toml(extra=f'[rules]\nprecision_floor = "fp32"\n{tasks.GOAL}'))
    body = "    union { float f; unsigned u; } b = {v};\n    b.u = (b.u + 0x1000u) & ~0x1fffu;\n    return b.f;"
    short = f"static float tf32(float v)\n{{\n{body}\n}}"
    low = kernel(LOOP.replace("x[i] * x[i]", "tf32(x[i]) * tf32(x[i])"), short)
    assert verdict_of(task, walls, library, reachable, low).reason is Reason.WRONG
    split = "tf32(x[i]) * tf32(x[i]) + 2 * tf32(x[i]) * (x[i] - tf32(x[i])) + (x[i] - tf32(x[i])) * (x[i] - tf32(x[i]))"
    assert verdict_of(task, walls, library, reachable, kernel(LOOP.replace("x[i] * x[i]", split), short)).reason is Reason.START


# --------------------------------------------------------------------------------------------- task.toml


@pytest.mark.parametrize(
    ("ruled", "what"),
    [
        ('precision_floor = "fp31"', "`precision_floor` cannot be `fp31`. Did you mean `fp32`?"),
        ('prepare = "always"', "`prepare` cannot be `always`"),
        ("min_axis = { k = 4 }", "`k` is no axis"),
        ('languages = ["rust"]', "`languages` cannot be `rust`"),
        ("no_state = 1", "`no_state` must be true or false, not a whole number"),
    ],
)
def test_a_rule_that_cannot_be_meant(tmp_path: Path, ruled: str, what: str) -> None:
    with pytest.raises(TaskError) as error:
        tasks.write(tmp_path, text=tasks.toml(extra=f"[rules]\n{ruled}\n{tasks.GOAL}"))
    assert error.value.what.startswith(what)
    assert error.value.where.startswith("task.toml:")
    assert error.value.next_step


def test_what_a_case_has_to_have_is_said(tmp_path: Path) -> None:
    with pytest.raises(TaskError) as error:
        tasks.write(tmp_path, text=tasks.toml(extra=f"[rules]\nmin_axis = {{ n = 131072 }}\n{tasks.GOAL}"))
    assert error.value.next_step == 'Add a [[case]] with n = 131072; use = "correct" if it is not to be timed'


@pytest.mark.parametrize(
    ("ruled", "what"),
    [
        ('languages = ["triton"]', "`[rules] languages` is about kernels that a GPU launches"),
        ('prepare = "step"', "a `prepare` beside the entry needs a GPU judge"),
    ],
)
def test_what_a_cpu_cannot_be_held_to(tmp_path: Path, ruled: str, what: str) -> None:
    from keepfast.task.checks import refuse_unfit

    task = tasks.write(tmp_path, text=tasks.toml(extra=f"[rules]\n{ruled}\n{tasks.GOAL}"))
    with pytest.raises(TaskError, match="`") as error:
        refuse_unfit(task)
    assert error.value.what.startswith(what)


def test_prepare_is_asked_for_and_forbidden(tmp_path: Path) -> None:
    text = tasks.toml(extra=f'[rules]\nprepare = "forbidden"\n{tasks.GOAL}').replace("schema = 1\n", 'schema = 1\nprepare = "step"\n')
    with pytest.raises(TaskError, match="asked for above and forbidden here"):
        tasks.write(tmp_path, text=text)
    assert load(tasks.write(tmp_path).folder and tmp_path).rules.min_axis == ()
