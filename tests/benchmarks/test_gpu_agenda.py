"""The agenda for a card: what is done next, what becomes of steps that fail, hang or are killed, and that nothing finished is lost.
Steps here are small programs; no GPU."""

from __future__ import annotations

import json
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from keepfast.errors import UsageError
from keepfast.model import Fact, Machine
from tests.benchmarks.test_gpu_benchmarks import gpu_script
from tests.gpu import shards

UNIT = "import sys, pathlib; p = pathlib.Path(sys.argv[1]); p.open('a').write(sys.argv[2] + '\\n')"
STUBBORN = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(600)"
SLEEPS = "import time; time.sleep(600)"


@pytest.fixture(scope="module")
def agenda() -> ModuleType:
    return gpu_script("agenda")


@pytest.fixture(scope="module")
def steps() -> ModuleType:
    return gpu_script("steps")


@pytest.fixture(scope="module")
def bundle() -> ModuleType:
    return gpu_script("bundle")


@pytest.fixture
def quick(agenda: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agenda, "GRACE_S", 0.0)
    monkeypatch.setattr(agenda, "LEAVE_S", 0.5)
    monkeypatch.setattr(agenda, "LOOK_S", 0.02)


@pytest.fixture
def step(steps: ModuleType) -> Callable[..., Any]:
    """`step("a", units=3)`: each turn finishes one of three units, a line of WORK/a.jsonl; or runs `code`."""

    def make(name: str, code: str = "", units: int = 1, **more: Any) -> Any:
        def count(work: Path) -> tuple[int, int]:
            path = work / f"{name}.jsonl"
            return (len(path.read_text().splitlines()) if path.exists() else 0), units

        words = ("-S", "-c", code) if code else ("-S", "-c", UNIT, f"{{work}}/{name}.jsonl", "{seconds} {card}")
        return steps.Step(**({"name": name, "words": words, "seconds": 9.0, "share": 60.0, "least": 1.0, "count": count} | more))

    return make


def worked(agenda: ModuleType, todo: list[Any], work: Path, seconds: float = 60.0, cards: tuple[str, ...] = ("GPU-0",)) -> list[Any]:
    """The turns that were taken."""
    work.mkdir(exist_ok=True)
    agenda.Agenda(todo, cards, work, work.parent / "out", time.monotonic() + seconds).run()
    path = work / agenda.LOG
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


# --------------------------------------------------------------------------------------------- turns


def test_steps_take_turns_in_order_of_worth_until_all_is_done(
    agenda: ModuleType, quick: None, step: Callable[..., Any], tmp_path: Path
) -> None:
    turns = worked(agenda, [step("a", units=2), step("b", units=2), step("c", units=0)], tmp_path / "work")
    assert sorted(t["step"] for t in turns) == ["a", "a", "b", "b"]
    assert [(t["before"], t["after"], t["of"], t["status"]) for t in turns if t["step"] == "a"] == [(0, 1, 2, 0), (1, 2, 2, 0)]
    assert {line.split()[1] for line in (tmp_path / "work/a.jsonl").read_text().splitlines()} == {"GPU-0"}
    assert worked(agenda, [step("a", units=2)], tmp_path / "work") == turns, "nothing is left to do"


def test_who_had_least_of_its_share_in_earlier_pieces_comes_first(
    agenda: ModuleType, quick: None, step: Callable[..., Any], tmp_path: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    before = agenda.Turn("a", "GPU-9", 0.0, 50.0, 60.0, 0, 0, 1, 2)
    (work / agenda.LOG).write_bytes(agenda.msgspec.json.encode(before) + b"\n")
    assert [t["step"] for t in worked(agenda, [step("a"), step("b"), step("c")], work)[1:]] == ["b", "c", "a"]


def test_a_step_that_fails_or_cannot_be_started_does_not_keep_the_others_from_theirs(
    agenda: ModuleType, quick: None, step: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, popen = agenda.subprocess.Popen, []

    def begun(argv: Any, **more: Any) -> Any:
        popen.append(argv)
        if argv[-1] == "cannot":
            raise OSError("no such program")
        return real(argv, **more)

    monkeypatch.setattr(agenda.subprocess, "Popen", begun)
    todo = [step("broken", "raise SystemExit(3)"), step("absent", "cannot"), step("a")]
    turns = worked(agenda, todo, tmp_path / "work")
    assert [(t["step"], t["status"], t["after"]) for t in turns] == [("broken", 3, 0), ("a", 0, 1)], "also when nothing else runs"
    assert len(popen) == 3, "what brings nothing is not begun again"
    assert "---" in (tmp_path / "work/logs/broken.txt").read_text()


@pytest.mark.parametrize("code", [SLEEPS, STUBBORN])
def test_a_step_that_does_not_end_is_ended_when_its_share_is_over(
    agenda: ModuleType, quick: None, step: Callable[..., Any], tmp_path: Path, code: str
) -> None:
    turns = worked(agenda, [step("hangs", code, share=1.0), step("a")], tmp_path / "work")
    assert [(t["step"], t["status"]) for t in turns] == [("hangs", None), ("a", 0)]


def test_all_of_it_ends_when_time_is_over(agenda: ModuleType, quick: None, step: Callable[..., Any], tmp_path: Path) -> None:
    began = time.monotonic()
    turns = worked(agenda, [step("hangs", SLEEPS), step("a")], tmp_path / "work", seconds=2.0)
    assert [(t["step"], t["status"]) for t in turns] == [("hangs", None)]
    assert time.monotonic() - began < 60
    assert (tmp_path / "out/results.tar.gz").exists()


def test_nothing_is_begun_that_does_not_fit(agenda: ModuleType, quick: None, step: Callable[..., Any], tmp_path: Path) -> None:
    todo = [step("long", least=500.0), step("whole", seconds=100.0, whole=True), step("a")]
    assert [t["step"] for t in worked(agenda, todo, tmp_path / "work", seconds=40.0)] == ["a"]


def test_two_cards_have_a_stream_each_and_what_must_be_apart_is(
    agenda: ModuleType, quick: None, step: Callable[..., Any], tmp_path: Path
) -> None:
    slow = "import time, sys, pathlib; time.sleep(1.5); pathlib.Path(sys.argv[1]).open('a').write('done\\n')"

    def slowly(name: str, **more: Any) -> Any:
        return step(name, words=("-S", "-c", slow, f"{{work}}/{name}.jsonl"), **more)

    todo = [slowly("tests", apart="corpus"), slowly("redteam", apart="corpus"), slowly("aa")]
    turns = worked(agenda, todo, tmp_path / "work", cards=("GPU-0", "GPU-1"))
    by_name = {t["step"]: t for t in turns}
    assert set(by_name) == {"tests", "redteam", "aa"}
    assert (by_name["tests"]["card"], by_name["aa"]["card"]) == ("GPU-0", "GPU-1")
    assert "aa" in by_name["tests"]["beside"]
    assert "redteam" not in by_name["tests"]["beside"]


# --------------------------------------------------------------------------------------------- bundles


def test_what_came_back_is_put_together_with_what_is_here(bundle: ModuleType, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder, lines, text in ((first, "1\n2\n", "old"), (second, "2\n3\n", "new")):
        (folder / "logs").mkdir(parents=True)
        (folder / "aa.jsonl").write_text(lines)
        (folder / "aa.json").write_text(text)
        (folder / "logs/aa.txt").write_text("x" * (bundle.LOG_BYTES + 5) + text)
    out = tmp_path / "out"
    assert bundle.pack(second, out) == out / "results.tar.gz"
    assert [path.name for path in out.iterdir()] == ["results.tar.gz"]
    assert bundle.unpack(out, first) == 3
    assert (first / "aa.jsonl").read_text() == "1\n2\n3\n"
    assert (first / "aa.json").read_text() == "new"
    assert (first / "logs/aa.txt").read_text().endswith("xnew")
    assert len((first / "logs/aa.txt").read_text()) == bundle.LOG_BYTES
    with pytest.raises(UsageError, match="no results"):
        bundle.unpack(tmp_path / "nothing", first)


def test_a_bundle_cannot_write_elsewhere(bundle: ModuleType, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "results.tar.gz", "w:gz") as archive:
        archive.add(__file__, arcname="../outside.py")
    (tmp_path / "work").mkdir()
    with pytest.raises(UsageError, match="outside"):
        bundle.unpack(tmp_path, tmp_path / "work")
    assert not (tmp_path / "outside.py").exists()


# --------------------------------------------------------------------------------------------- the command line


def test_the_list_needs_no_gpu_and_touches_nothing(agenda: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert agenda.main(["--list", "--work", str(tmp_path / "work")]) == 0
    said = capsys.readouterr().out
    assert [line.split()[:3] for line in said.splitlines() if line.startswith("gains")] == [["gains", "0", "64"]]
    assert "are missing" in said
    assert not (tmp_path / "work").exists()


def test_steps_are_chosen_by_name(agenda: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert [s.name for s in agenda.chosen("gains,aa", 2)] == ["aa", "gains 1/2", "gains 2/2"]
    assert [s.name for s in agenda.chosen("gains 2/2", 2)] == ["gains 2/2"]
    assert agenda.main(["--list", "--steps", "gians", "--work", str(tmp_path)]) == 2
    assert "e2e-aa" in capsys.readouterr().err


def test_a_piece_of_work_goes_on_from_what_came_back(
    agenda: ModuleType, quick: None, step: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(agenda, "steps", lambda cards: (step("a", units=3), step("b", least=500.0)))
    monkeypatch.setattr(agenda.nvidia, "cards", lambda: (SimpleNamespace(uuid="GPU-0"), SimpleNamespace(uuid="GPU-1")))
    monkeypatch.setattr(agenda, "prepared", lambda work: None)
    monkeypatch.setattr(agenda, "LAST_S", 0.0)
    (tmp_path / "before").mkdir()
    (tmp_path / "before/a.jsonl").write_text("already\n")
    gpu_script("bundle").pack(tmp_path / "before", tmp_path / "came")
    words = ["--from", str(tmp_path / "came"), "--work", str(tmp_path / "work"), "--out", str(tmp_path / "out"), "--seconds", "60"]
    assert agenda.main(words) == 0
    assert len((tmp_path / "work/a.jsonl").read_text().splitlines()) == 3
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"results.tar.gz", "agenda.txt"}
    said = (tmp_path / "out/agenda.txt").read_text()
    assert said.splitlines()[1].split() == ["a", "3", "3", "-", "60"]
    assert "a begins on GPU-0" in capsys.readouterr().out


def test_summing_up_runs_every_script_without_a_gpu(
    agenda: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(agenda.subprocess, "run", lambda argv, **more: ran.append(list(argv)))
    assert agenda.main(["--seconds", "0", "--work", str(tmp_path)]) == 0
    assert [Path(argv[1]).name for argv in ran] == [
        "aa.py", "gains.py", "judging.py", "plans.py", "kernels.py", "resample.py", "commands.py",
    ]  # fmt: skip
    assert all(str(tmp_path) in argv for argv in ran)
    assert "seconds left" in capsys.readouterr().out


def test_doctor_that_hangs_or_is_not_there_ends_nothing(agenda: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agenda, "PREPARE_S", 0.01)
    agenda.prepared(tmp_path)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    agenda.prepared(tmp_path)
    assert (tmp_path / "logs/doctor.txt").exists()


# --------------------------------------------------------------------------------------------- what is counted


def test_every_step_counts_what_is_done(steps: ModuleType, tmp_path: Path) -> None:
    """Units as the scripts write them, of one label; those of another, and cut lines, count for nothing."""
    for one in steps.steps(2):
        assert steps.counted(one, tmp_path)[0] == 0
        assert one.left(0, 4) == pytest.approx(one.seconds)
        assert one.left(4, 4) == 0.0
        argv = one.argv(12.0, "GPU-0", tmp_path)
        assert argv[0] == sys.executable
        assert not [word for word in argv if "{" in word]
    bench = gpu_script("bench")
    made = bench.Session(Machine("cpu", 2, "6", "gcc", "walls", "NVIDIA H200", (), "m"), "580.1", (Fact("torch", "2"),), "now", "x")
    given = bench.Given(seconds=1.0, out=tmp_path, fresh=False, card="")
    aa, judging = gpu_script("aa"), gpu_script("judging")
    book = bench.Book(given, "aa", made)
    book.store.add(f"{aa.prefix('norm')}0", 1)
    book.store.add(f"{bench.FAILED}2 {aa.prefix('norm')}1", 1)
    book.store.add(f"{bench.FAILED}1 {aa.prefix('norm')}2", 1)
    with (tmp_path / "aa.jsonl").open("ab") as cut:
        cut.write(b'{"machine":"')
    assert steps.count_aa(tmp_path) == (2, 72)
    bench.Book(given, "judging", made).store.add("keep 0", 1)
    assert steps.count_judging(tmp_path) == (1, len(judging.KINDS) * 3)
    plain, compiled = (next(s for s in steps.steps() if s.name == name) for name in ("best_config", "best_config compiled"))
    arms = plain.words[plain.words.index("--arms") + 1].split(",")
    line = {"key": "k", "cell": "decode 8192 x 8", "arms": ["stock", *(a for a in arms if a != "stock")], "failed": "no"}
    (tmp_path / "best_config.jsonl").write_text(f'{json.dumps(line)}\n{{"key":"b')
    assert (plain.count(tmp_path), compiled.count(tmp_path)) == ((1, 4), (1, 12))


def test_answers_to_the_corpus_count_unless_the_machine_spoilt_them(steps: ModuleType, tmp_path: Path) -> None:
    from keepfast.redteam import attempt
    from keepfast.redteam.outcome import Found
    from tests.gpu.samples import outcome, samples

    first, second = samples()[:2]
    path = tmp_path / steps.CORPUS
    attempt._write(path, "here", outcome(first, Found(True, "wrong", "correct"), 1.0))
    attempt._write(path, "here", outcome(second, Found(False, "machine", void=True), 1.0))
    assert steps.count_corpus(tmp_path) == (1, len(samples()))


def test_a_count_that_cannot_be_made_says_that_nothing_is_done(steps: ModuleType, step: Callable[..., Any], tmp_path: Path) -> None:
    def broken(work: Path) -> tuple[int, int]:
        raise ValueError("no")

    assert steps.counted(step("a", count=broken), tmp_path) == (0, 1)


# --------------------------------------------------------------------------------------------- shards of tests/gpu


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of tests in place of tests/gpu."""
    folder = tmp_path / "small"
    folder.mkdir()
    (folder / "test_good.py").write_text("def test_good(): pass\n")
    (folder / "test_bad.py").write_text("def test_bad(): assert 1 == 2, 'one is not two'\ndef test_good(): pass\n")
    (folder / "test_none.py").write_text("import pytest\n@pytest.mark.skip(reason='no card')\ndef test_none(): pass\n")
    (folder / "test_hangs.py").write_text("import time\ndef test_hangs(): time.sleep(600)\n")
    (folder / "pytest.ini").write_text("[pytest]\n")
    monkeypatch.setattr(shards, "ROOT", folder)
    return folder


def test_shards_say_what_failed_and_are_not_run_again(small: Path, tmp_path: Path) -> None:
    said: list[str] = []
    made = [shards.Shard(n, (f"test_{n}.py",), alone, 1.0) for n, alone in (("good", False), ("bad", False), ("none", True))]
    out = tmp_path / "out"
    found = {e.name: e for e in shards.Runner(out, time.monotonic() + 120, say=said.append).run(made)}
    assert (found["good"].whole, found["good"].passed, found["good"].failed) == (True, 1, ())
    assert (found["bad"].whole, found["bad"].passed, [name for name, _ in found["bad"].failed]) == (True, 1, ["test_bad"])
    assert "one is not two" in found["bad"].failed[0][1]
    assert not found["none"].whole, "where everything was skipped nothing is known"
    assert len(said) == 3
    again = shards.Runner(out, time.monotonic() + 120, say=said.append)
    assert {e.name for e in again.run(made[:2])} == {"good", "bad"}
    assert len(said) == 3


def test_a_shard_that_does_not_end_is_ended_and_no_other_is_begun(small: Path, tmp_path: Path) -> None:
    made = [shards.Shard("hangs", ("test_hangs.py",), False, 1.0), shards.Shard("good", ("test_good.py",), True, 1.0)]
    (found,) = shards.Runner(tmp_path / "out", time.monotonic() + 2, say=lambda text: None).run(made)
    assert (found.name, found.status, found.whole) == ("hangs", None, False)
    assert "DID NOT END" in shards.line(found)


def test_every_test_of_the_folder_is_in_one_shard() -> None:
    files = {word.split("/")[-1] for shard in shards.SHARDS for word in shard.words if word.endswith(".py")}
    assert files == {path.name for path in Path(shards.__file__).parent.glob("test_*.py")}
    beside = [s for s in shards.SHARDS if not s.alone]
    assert all("not alone" in s.words for s in beside)
    assert beside == list(shards.SHARDS[: len(beside)]), "what is beside others comes first"
    assert sum(s.seconds for s in shards.SHARDS if s.alone) + max(s.seconds for s in beside) < 480


def test_the_command_says_how_it_went(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    from tests.gpu import __main__ as command

    made = tuple(shards.Shard(n, (f"test_{n}.py",), False, 1.0) for n in ("good", "bad"))
    monkeypatch.setattr(command, "SHARDS", made)
    words = ["--out", str(tmp_path / "out"), "--seconds", "120"]
    assert command.main([*words, "--only", "good"]) == 0
    assert command.main(words) == 1
    assert "2 passed, 1 failed, 2 of 2 shards ended" in capsys.readouterr().out
    (small / "test_bad.py").write_text("def test_bad(): pass\n")
    assert command.main([*words, "--fresh"]) == 0
    (tmp_path / "out/good.json").write_text("cut of")
    assert command.main([*words, "--seconds", "-1", "--only", "good"]) == 5
