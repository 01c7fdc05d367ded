"""Capture workers as the judge holds them: warm, handed a candidate, killed, and believed only as far as their plans can be checked."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from keepfast.errors import MachineError, TaskError
from keepfast.gpu.driver import RESERVE
from keepfast.gpu.plan import decode
from keepfast.judge.endings import Failure
from keepfast.judge.gpu.workers import Captured, Pool, Subject, WorkerSpec
from keepfast.model import File, Reason
from keepfast.walls.base import Walls

from . import fakes
from .fakes import MIB

GOOD = "hand(*(made(work) for work in capture.cases))"
SLOW_S = 30.0


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    import shutil

    made = Walls.detect().folder()
    (made / "arena.so").write_bytes(b"")
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def spec(folder: Path) -> WorkerSpec:
    return WorkerSpec(str(folder / "arena.so"), max_bytes=1 << 30, read=(str(folder),), size=2, scratch_bytes=64 * MIB)


@pytest.fixture(scope="module")
def pool(walls: Walls, spec: WorkerSpec, folder: Path) -> Iterator[Pool]:
    with Pool(walls, spec, fakes.program(folder, fakes.WORKER)) as made:
        yield made


def subject(code: str, *cases: str, calls: int = 3, library: Path | None = None) -> Subject:
    named = cases or ("main",)
    samples = tuple(b"" if case == "bare" else f"sample of {case}".encode() for case in named)
    works = tuple(fakes.work(case, calls, len(sample)) for case, sample in zip(named, samples, strict=True))
    files = (File("kernel/kernel.py", code.encode()), File("kernel/more.py", b"x = 1\n"))
    return Subject("triton", "kernel/kernel.py", "kernel", files, works, samples, library)


def refused(pool: Pool, code: str, *cases: str, timeout_s: float = SLOW_S) -> Failure:
    found = pool.capture(subject(code, *cases), timeout_s)
    assert isinstance(found, Failure), found
    return found


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def pids(pool: Pool) -> list[int]:
    return [worker._walled.pid for worker in pool._warm]


# ---- what a good one hands over


def test_plans_come_back_checked_with_all_that_was_said(pool: Pool) -> None:
    more = 'autotuned=(("rms_k", ("BLOCK 64", "BLOCK 128")),), versions=(("torch", "2.11"),)'
    code = f"hand(*(made(work) for work in capture.cases), {more})"
    found = pool.capture(subject(code, "main", "odd"), SLOW_S)
    assert isinstance(found, Captured), found
    assert list(found.plans) == ["main", "odd"]
    assert found.plans["odd"].plan.case == "odd"
    assert found.plans["odd"].plan.kernels()[0].name == "rms_k"
    assert found.arm("main") is found.plans["main"]
    assert (found.arm("main").arena, found.arm("main").arena_bytes) == (found.arena, found.arena_bytes)
    assert found.host_us == {"main": 12.5, "odd": 12.5}
    assert found.autotuned == (("rms_k", ("BLOCK 64", "BLOCK 128")),)
    assert found.versions == (("torch", "2.11"),)
    assert 0 < found.seconds < SLOW_S


def test_files_library_and_samples_arrive_as_they_are_and_cannot_be_written(pool: Pool, tmp_path: Path) -> None:
    (tmp_path / "k.so").write_bytes(b"\x7fELF" * 5000)
    code = """
assert files[1] == ("kernel/more.py", b"x = 1\\n")
assert hashlib.sha256(os.pread(library, 1 << 20, 0)).digest() == hashlib.sha256(b"\\x7fELF" * 5000).digest()
assert [os.pread(fd, 100, 0) for fd in samples] == [b"sample of main", b"sample of odd"]
for fd in (library, *samples):
    try:
        os.pwrite(fd, b"x", 0)
    except OSError:
        continue
    raise SystemExit("written")
for fd in memory:
    wire.check(fd, plan.MAX_BYTES)
assert (capture.language, capture.entry_path, capture.entry_symbol) == ("triton", "kernel/kernel.py", "kernel")
assert capture.prepare == "step"
"""
    found = pool.capture(replace(subject(code + GOOD, "main", "bare", "odd", library=tmp_path / "k.so"), prepare="step"), SLOW_S)
    assert isinstance(found, Captured), found


def test_what_comes_behind_a_plan_is_kept_apart(pool: Pool) -> None:
    code = """
good = made(work)
data = plan.encode(good)
os.pwrite(memory[0], data + b"IR", 0)
say(messages.Captured(cases=(CapturedCase("main", len(data), 1.0, 2),)))
"""
    found = pool.capture(subject(f"{WORK}\n{code}"), SLOW_S)
    assert isinstance(found, Captured), found
    assert found.plans["main"].ir == b"IR"
    assert decode(found.plans["main"].data) == found.plans["main"].plan


@pytest.mark.parametrize("size", ["-1", "plan.MAX_BYTES"])
def test_more_behind_a_plan_than_there_is_room_for(pool: Pool, size: str) -> None:
    failure = refused(pool, f'{WORK}\nsay(messages.Captured(cases=(CapturedCase("main", 100, 1.0, {size}),)))')
    assert (failure.reason, "bytes of IR behind a plan of 100" in failure.detail) == (Reason.NOT_A_PLAN, True)


def test_a_worker_captures_once_and_another_is_warm_again(pool: Pool) -> None:
    before = pids(pool)
    assert isinstance(pool.capture(subject(GOOD), SLOW_S), Captured)
    assert pool.settle(SLOW_S)
    after = pids(pool)
    assert len(after) == 2
    assert len(set(before) & set(after)) == 1
    assert alive(before) == [pid for pid in before if pid in after]


def test_arenas_are_drawn_apart_from_all_that_are_remembered(pool: Pool) -> None:
    kept = [pool.capture(subject(GOOD), SLOW_S) for _ in range(3)]
    bases = [c.arena for c in kept if isinstance(c, Captured)] + [w.arena for w in pool._warm]
    assert all(base % RESERVE == 0 and 64 << 36 <= base < (512 << 36) + (32 << 30) for base in bases)
    bases.sort()
    assert all(b - a >= pool.spec.arena_bytes for a, b in pairwise(bases))


def test_the_environment_is_the_one_of_the_walls(pool: Pool) -> None:
    code = """
home = os.environ["HOME"]
assert os.environ["TRITON_CACHE_DIR"].startswith(home + "/"), os.environ
assert os.environ["TORCHINDUCTOR_CACHE_DIR"].startswith(home + "/")
assert os.environ["CUDA_MODULE_LOADING"] == "LAZY" and os.environ["OMP_NUM_THREADS"] == "4"
assert not {k for k in os.environ if "XDG" in k or "KEEPFAST" in k}
os.makedirs(home + "/triton")
"""
    assert isinstance(pool.capture(subject(code + GOOD), SLOW_S), Captured)


def test_more_cases_than_descriptors_are_refused(pool: Pool) -> None:
    with pytest.raises(TaskError, match="at most 30 can be judged"):
        pool.capture(subject(GOOD, *(f"case{i}" for i in range(31))), SLOW_S)
    assert isinstance(pool.capture(subject(GOOD, *(f"case{i}" for i in range(30)), calls=1), SLOW_S), Captured)


# ---- failures of the candidate


@pytest.mark.parametrize(
    ("code", "reason", "detail"),
    [
        ('fail("import", "kernel.py:3: no module named `foo`")', Reason.LOAD, "kernel.py:3: no module named `foo`"),
        ('fail("compile", "kernel.py:31:\\n  bad type", "main")', Reason.BUILD, "case main: kernel.py:31: bad type"),
        ('fail("raised", "ValueError: no", "main")', Reason.CRASH, "case main: the host code raised: ValueError: no"),
        (
            'fail("result", "one tensor")',
            Reason.WRONG,
            "what it returned is not what the signature says: one tensor",
        ),
        ('fail("graph", "kernel.py:9: .item()", "main")', Reason.GRAPHS, "case main: kernel.py:9: .item()"),
        ('fail("not-a-plan", "a host node", "main")', Reason.NOT_A_PLAN, "case main: a host node"),
        ('fail("memory")', Reason.LIMITS, "more device memory than it may have"),
        ('fail("fault", "illegal address", "main")', Reason.CRASH, "case main: a kernel faulted: illegal address"),
        ('fail("nothing", "", "main")', Reason.NOT_A_PLAN, "case main: launched nothing"),
        ('fail("nothing", "", "no such case")', Reason.NOT_A_PLAN, "launched nothing"),
    ],
)
def test_errors_become_reasons_with_their_sentences(pool: Pool, code: str, reason: Reason, detail: str) -> None:
    assert refused(pool, code) == Failure(reason, detail)


OUTSIDE = """
def prepared(work):
    found = made(work)
    return made(work, prepare=found.nodes)

hand(*(prepared(work) for work in capture.cases))
"""


def weighed(one: Subject, prepare: str) -> Subject:
    """The same, whose tensor is a weight."""
    works = []
    for work in one.cases:
        given = tuple(replace(g, tensor=replace(g.tensor, role="weight")) for g in work.layout.given if g.tensor is not None)
        works.append(replace(work, layout=replace(work.layout, given=given)))
    return replace(one, cases=tuple(works), prepare=prepare)


@pytest.mark.parametrize(
    ("prepare", "said"), [("", "and the task forbids it"), ("step", "and the task asks for it inside"), ("weights", "")]
)
def test_work_outside_the_clock_is_only_where_the_task_has_it(pool: Pool, prepare: str, said: str) -> None:
    """Whatever the worker was told: the plan tells."""
    found = pool.capture(weighed(subject(OUTSIDE), prepare), SLOW_S)
    if not said:
        assert isinstance(found, Captured), found
        assert len(found.arm("main").plan.prepare) == 3
        return
    assert isinstance(found, Failure)
    assert (found.reason, found.cheat) == (Reason.RULE, True)
    assert found.detail == f"case main: its plan has work of `prepare` outside the clock, {said}"


def test_without_weights_there_is_nothing_to_prepare(pool: Pool) -> None:
    found = pool.capture(replace(subject(OUTSIDE), prepare="weights"), SLOW_S)
    assert isinstance(found, Failure)
    assert (found.reason, "the task has no weights" in found.detail) == (Reason.RULE, True)


def test_no_answer_in_time(pool: Pool) -> None:
    failure = refused(pool, "time.sleep(60)", timeout_s=1.5)  # long enough for it to come to its sleep
    assert failure.reason is Reason.HANG
    assert "no answer to capture within 1.5 s; it was waiting" in failure.detail


def test_half_an_answer_is_none(pool: Pool) -> None:
    assert refused(pool, 'channel.sendall(b"\\x40\\0\\0\\0{")', timeout_s=0.3).reason is Reason.HANG


def test_an_end_without_an_answer_is_told_with_its_last_words(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    failure = refused(pool, 'print("so long", file=sys.stderr, flush=True); os._exit(3)')
    assert failure == Failure(Reason.CRASH, "exited (code 3); a kernel has to return; its last words: so long")
    failure = refused(pool, "import ctypes; ctypes.string_at(8)")
    assert failure.reason is Reason.CRASH
    assert failure.detail.startswith("SIGSEGV: touched memory that it may not")
    monkeypatch.setattr("keepfast.judge.gpu.worker.EXIT_S", 0.2)
    failure = refused(pool, "channel.close(); time.sleep(60)")
    assert failure == Failure(Reason.PROTOCOL, "closed the judge's channel and went on")


def test_a_flood_of_output_holds_nobody_up(pool: Pool) -> None:
    code = 'for i in range(20000): print(f"warning {i} " + 40 * "x", file=sys.stderr)\nsys.stderr.flush()\n'
    assert isinstance(pool.capture(subject(code + GOOD), SLOW_S), Captured)
    assert "its last words: warning 19999 xxx" in refused(pool, code + "os._exit(1)").detail


@pytest.mark.parametrize(
    "code",
    [
        'channel.sendall(b"\\xff\\xff\\xff\\x7f")',
        'channel.sendall(b"\\x02\\0\\0\\0[]")',
        'wire.send(channel, {"error": 3})',
        'wire.send(channel, {"cases": [{"case": "main", "plan_bytes": "many", "host_us": 1.0}]})',
        "say(messages.Captured(), (memory[0],))",
        'fail("no such error")',
        "say(messages.Captured())",
        'say(messages.Captured(cases=(CapturedCase("other", 10, 1.0),)))',
        'say(messages.Captured(cases=(CapturedCase("main", 10, 1.0),) * 2))',
        'say(messages.Captured(cases=(CapturedCase("main", 10, -1.0),)))',
    ],
)
def test_words_out_of_turn_are_a_cheat(pool: Pool, code: str) -> None:
    failure = refused(pool, code)
    assert failure.reason is Reason.PROTOCOL
    assert failure.cheat


@pytest.mark.parametrize("more", ["frame", "b'x'"])
def test_more_than_one_answer_is_a_cheat(pool: Pool, more: str) -> None:
    code = f"frame = wire.encode(msgspec.to_builtins(messages.Captured())); channel.sendall(frame + {more})"
    assert refused(pool, code) == Failure(Reason.PROTOCOL, "sent more than one answer", True)


WORK = "work = capture.cases[0]; good = made(work); one = good.results[0]"


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ('hand(b"\\x93\\0no plan")', "not a plan"),
        ('say(messages.Captured(cases=(CapturedCase("main", 0, 1.0),)))', "a plan of 0 bytes"),
        ('say(messages.Captured(cases=(CapturedCase("main", plan.MAX_BYTES + 1, 1.0),)))', "bytes; one has 1 to"),
        ('say(messages.Captured(cases=(CapturedCase("main", 2 ** 60, 1.0),)))', "MiB together"),
        ('say(messages.Captured(cases=(CapturedCase("main", 1000, 1.0),)))', "not a plan"),  # nothing was written
        ("hand(made(work, version=1))", "version 1"),
        ('hand(made(work, case="odd"))', "it is of case 'odd'"),
        ("hand(made(work, calls=2, nodes=good.nodes[:2], results=good.results[:2]))", "with 2 calls, not of 3"),
        ("hand(made(work, segments=(Segment(warm.arena - 512, 512), *good.segments)))", "memory outside the arena"),
        ("hand(made(work, segments=(*good.segments, Segment(warm.arena + warm.arena_bytes, 1))))", "memory outside the arena"),
        ("hand(made(work, sets=good.sets + 512))", "not one block"),
        ("hand(made(work, segments=(Segment(good.sets, 3 * work.layout.set_bytes), good.segments[1])))", "not one block"),
        ("hand(made(work, results=(one[:1], *good.results[1:])))", "sizes of the outputs"),
        ("hand(made(work, results=((Segment(one[0].address, 99), one[1]), *good.results[1:])))", "sizes of the outputs"),
        ("hand(made(work, results=((Segment(good.sets, 4096), one[1]), *good.results[1:])))", "lies in the sets"),
        ('hand(made(work, blocks=(Block(good.sets + 1024, b"x" * 8),)))', "lies in the sets"),
    ],
)
def test_a_plan_that_is_not_what_was_asked_for(pool: Pool, code: str, why: str) -> None:
    failure = refused(pool, f"{WORK}\n{code}")
    assert failure.reason is Reason.NOT_A_PLAN
    assert why in failure.detail
    assert failure.detail.startswith("case main: ") or "together" in failure.detail


# ---- failures before there is a candidate


def one_of(walls: Walls, spec: WorkerSpec, reachable: Path, body: str) -> Pool:
    return Pool(walls, replace(spec, size=1, read=(str(reachable),)), fakes.program(reachable, fakes.WORKER, body))


def test_a_taken_arena_costs_another_worker(walls: Walls, spec: WorkerSpec, reachable: Path) -> None:
    with one_of(walls, spec, reachable, 'def before(): ready(number == 2, "arena")') as pool:
        assert isinstance(pool.capture(subject(GOOD), SLOW_S), Captured)
        assert pool.collisions == 2


def test_arenas_that_are_always_taken_are_a_fault_of_the_machine(walls: Walls, spec: WorkerSpec, reachable: Path) -> None:
    with (
        one_of(walls, spec, reachable, 'def before(): ready(False, "arena")') as pool,
        pytest.raises(MachineError, match="addresses taken"),
    ):
        pool.capture(subject(GOOD), SLOW_S)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ('def before(): ready(False, "no module named triton")', "did not get ready: no module named triton"),
        ('def before(): raise SystemExit("no luck")', r"exited \(code 1\); its last words: no luck"),
        ('def before(): say(messages.Captured("import", "x"))', "said something else"),
        ('def before(): channel.sendall(b"\\xff\\xff\\xff\\xff")', "said something else"),
        ("def before(): channel.close(); time.sleep(600)", "closed its channel"),
    ],
)
def test_a_worker_that_does_not_get_ready(
    walls: Walls, spec: WorkerSpec, reachable: Path, body: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("keepfast.judge.gpu.worker.EXIT_S", 3.0)
    with one_of(walls, spec, reachable, body) as pool:
        with pytest.raises(MachineError, match=why) as caught:
            pool.capture(subject(GOOD), SLOW_S)
        assert "keepfast doctor" in caught.value.next_step


def test_a_worker_that_is_never_ready(walls: Walls, spec: WorkerSpec, reachable: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keepfast.judge.gpu.workers.READY_S", 0.2)
    with one_of(walls, spec, reachable, "def before(): time.sleep(600)") as pool:
        assert not pool.settle(0.1)
        with pytest.raises(MachineError, match=r"not ready after 0 s"):
            pool.capture(subject(GOOD), SLOW_S)


def test_a_closed_pool_leaves_nothing(walls: Walls, spec: WorkerSpec, reachable: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    with one_of(walls, spec, reachable, "") as pool:
        pool.capture(subject("os.fork(); os.fork(); time.sleep(60)"), 0.3)
        started = pids(pool)
        assert alive(started)
    assert not alive(started)
    pool.close()
    assert set(os.listdir("/proc/self/fd")) == before
