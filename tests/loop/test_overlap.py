"""Agents at work while the judge is: what is judged meanwhile, how an old edit meets a new champion, tries, and what comes from outside."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from msgspec.structs import replace

from keepfast import loop, model
from keepfast.ledger import Ledger
from keepfast.propose import outside
from keepfast.propose.agent import Job, Outcome, Turn, Usage
from keepfast.propose.agents import OWN_LAST
from keepfast.propose.flights import Threads
from keepfast.propose.roster import Member, Roster
from keepfast.repo import Repo
from keepfast.testing import RecordedJudge, ScriptedAgent, ScriptedProposer, edit, keep, proposer, reject, revert
from tests.loop import kit

PATH = "kernel/kernel.c"
LINES = [f"int line{i};" for i in range(20)]
LONG_S = 60.0
NUMBERS = count()  # no two changes alike


def text(**changed: str) -> bytes:
    """The kernel with lines changed: text(l3="int x;")."""
    return "\n".join(changed.get(f"l{i}", line) for i, line in enumerate(LINES)).encode() + b"\n"


@pytest.fixture
def where(tmp_path: Path) -> Path:
    made = kit.repository(tmp_path)
    (made / PATH).write_bytes(text())
    kit.git(tmp_path, "commit", "-qam", "a longer kernel")
    return made


@pytest.fixture
def ledger(where: Path) -> Iterator[Ledger]:
    with Ledger.open(Repo.find(where).ensure_state()) as opened:
        yield opened


def free(*kernels: bytes) -> Member:
    changes = tuple(model.Proposal(f"free {i}", "scripted", model.Files(((PATH, k),))) for i, k in enumerate(kernels))
    return Member(ScriptedProposer(changes), "free")


def by_size(candidate: model.Candidate, against: model.Candidate) -> model.Verdict:
    """More `fast` in the text is faster."""
    mine, theirs = (c.files[0].data.count(b"fast") for c in (candidate, against))
    return keep(1.1) if mine > theirs else revert()


def judge(verdicts: Callable[[model.Candidate, model.Candidate], model.Verdict] = by_size) -> RecordedJudge:
    return RecordedJudge(verdicts, logs=lambda c: -0.1 * c.files[0].data.count(b"fast"))


def go(where: Path, ledger: Ledger, who: Roster, by: RecordedJudge, experiments: int = 50, **more: object) -> model.End:
    task = kit.task(where, budget=model.Budget(experiments=experiments))
    session = kit.session(where, ledger, (), by, task_=task, **more)
    return loop.run(replace(session, proposer=who))


def experiments(ledger: Ledger) -> tuple[model.Experiment, ...]:
    run = ledger.latest()
    assert run is not None
    return ledger.experiments(run.id)


def notes(ledger: Ledger, kind: str) -> list[model.Event]:
    run = ledger.latest()
    assert run is not None
    return [e.event for e in ledger.events(run.id) if e.event.kind == kind]


def stopping(ledger: Ledger, agent: ScriptedAgent, after: int) -> Callable[[model.Event], None]:
    """Ask the run to stop when so many experiments of the agent were judged."""
    left = [after]

    def on_event(event: model.Event) -> None:
        if event.experiment is not None and event.experiment.proposer == agent.name:
            left[0] -= 1
            if not left[0]:
                ledger.post("stop")

    return on_event


# --------------------------------------------------------------------------------------------- overlap


def test_the_judge_works_while_an_agent_thinks_and_its_edit_is_rebased(where: Path, ledger: Ledger) -> None:
    judged = threading.Event()

    def turn(job: Job, n: int) -> Turn:
        assert judged.wait(LONG_S)  # until the free change was kept
        return edit(PATH, text(l15="int fast15;"), title="late")

    def on_event(event: model.Event) -> None:
        if event.experiment is not None and event.experiment.verdict.kept and event.experiment.n > 1:
            judged.set()
        stop(event)

    agent = ScriptedAgent("claude", turn)
    stop = stopping(ledger, agent, 1)
    roster = Roster((free(text(l2="int fast2;")), Member(proposer(agent))), flights=Threads(1))
    end = go(where, ledger, roster, judge(), on_event=on_event)
    _start, one, two = experiments(ledger)
    assert [(e.proposer, e.verdict.kind, e.parent) for e in (one, two)] == [("scripted", "keep", 1), ("claude", "keep", 2)]
    assert kit.git(where, "show", f"{end.branch}:./{PATH}").encode() == text(l2="int fast2;", l15="int fast15;")
    assert (two.dollars, two.tokens) == (0.1, 1200)


def test_an_edit_of_the_same_lines_goes_back_to_its_author(where: Path, ledger: Ledger) -> None:
    judged = threading.Event()

    def turn(job: Job, n: int) -> Turn:
        assert judged.wait(LONG_S)
        line = job.files[0].data.split(b"\n")[2].decode()
        return edit(PATH, text(l2=f"{line} int fast{n};"))

    def on_event(event: model.Event) -> None:
        if event.experiment is not None and event.experiment.verdict.kept and event.experiment.n > 1:
            judged.set()
        stop(event)

    agent = ScriptedAgent("claude", turn)
    stop = stopping(ledger, agent, 1)
    roster = Roster((free(text(l2="int fast;")), Member(proposer(agent))), flights=Threads(1))
    go(where, ledger, roster, judge(), on_event=on_event)
    (back,) = notes(ledger, "returned")
    assert back.text == "experiment 2 was kept meanwhile, and both change the same lines: kernel/kernel.c: line 3"
    _first, second = agent.jobs[:2]
    assert "was not judged: experiment 2 was kept meanwhile" in second.remark
    assert {f.path: f.data for f in second.readable}[f"{OWN_LAST}/{PATH}"] == text(l2="int line2; int fast0;")
    assert second.files[0].data == text(l2="int fast;")
    last = experiments(ledger)[-1]
    assert (last.proposer, last.verdict.kind, last.dollars) == ("claude", "keep", 0.2)  # both turns are paid by it


def test_everybody_who_is_free_works_and_what_they_bring_is_judged_in_order(where: Path, ledger: Ledger) -> None:
    both = threading.Barrier(2, timeout=LONG_S)

    def turn(job: Job, n: int) -> Turn:
        if n == 0:
            both.wait()
        return edit(PATH, text(l1=f"int a{next(NUMBERS)};"))

    agents = ScriptedAgent("a", turn), ScriptedAgent("b", turn)
    roster = Roster(tuple(Member(proposer(a)) for a in agents), flights=Threads(2))
    go(where, ledger, roster, judge(), experiments=9)
    order = [e.turn.edit for e in notes(ledger, "turn") if e.turn and e.turn.edit]
    done = [e.edit for e in experiments(ledger)[1:]]
    assert done == order[: len(done)]
    assert {e.proposer for e in experiments(ledger)[1:]} == {"a", "b"}
    assert len(done) == 8


def test_turns_under_way_are_ended_with_the_run_and_paid(where: Path, ledger: Ledger) -> None:
    begun = threading.Event()

    def quick(job: Job, n: int) -> Turn:
        assert begun.wait(LONG_S)
        return edit(PATH, text(l1="int slow;"))

    def long(job: Job, n: int) -> Turn:
        begun.set()
        while not job.limits.ended():
            threading.Event().wait(0.01)
        return Turn(Outcome.STOPPED, "the run ended", usage=Usage(70, 7, dollars=0.03))

    agents = ScriptedAgent("quick", quick), ScriptedAgent("long", long)
    roster = Roster(tuple(Member(proposer(a)) for a in agents), flights=Threads(2))
    end = go(where, ledger, roster, judge(), on_event=stopping(ledger, agents[0], 1))
    said = [(e.turn.proposer, e.turn.outcome) for e in notes(ledger, "turn") if e.turn]
    assert (end.state, said) == ("stopped", [("quick", "edited"), ("long", "stopped")])
    run = ledger.latest()
    assert run is not None
    assert ledger.spent(run.id) == (pytest.approx(0.13), 1277)
    assert not [t for t in threading.enumerate() if t.name.startswith("turn of")]


def test_an_edit_that_was_not_judged_when_the_run_died_is_judged_on_resume(where: Path, ledger: Ledger) -> None:
    class Dead(Exception):
        pass

    class Mortal(RecordedJudge):
        def evaluate(self, *given: object, **how: bool) -> model.Verdict:
            raise Dead

    agent = ScriptedAgent("claude", [edit(PATH, text(l1="int fast;"), title="paid")])
    with pytest.raises(Dead):
        go(where, ledger, Roster((Member(proposer(agent)),)), Mortal(by_size, logs=lambda c: -0.1))
    assert len(experiments(ledger)) == 1
    again = ScriptedAgent("claude", [edit(PATH, text(l1="int other;"))], began=1)
    go(where, ledger, Roster((Member(proposer(again)),)), judge(), experiments=2)
    (one,) = experiments(ledger)[1:]
    assert (one.title, one.verdict.kind, one.dollars, again.taken) == ("paid", "keep", 0.1, 1)


# --------------------------------------------------------------------------------------------- tries


def test_a_try_within_a_turn_is_answered_and_counted(where: Path, ledger: Ledger) -> None:
    said: list[str] = []

    def turn(job: Job, n: int) -> Turn:
        assert job.ask is not None
        said.append(job.ask(((PATH, text(l1="int fast;")),)))
        said.append(job.ask(((PATH, text()),)))
        return edit(PATH, text(l1=f"int fast; int n{n};"))

    by = judge()
    roster = Roster((Member(proposer(ScriptedAgent("claude", turn))),), flights=Threads(1))
    go(where, ledger, roster, by, experiments=4)
    assert said[0].startswith("It is right. Against experiment 1, the kernel to beat:")
    assert said[1] == "The files are those of the kernel to beat: nothing is changed."
    tries = notes(ledger, "try")
    assert [(e.about, dict(e.numbers)["judged"]) for e in tries[:2]] == [("claude", 1.0), ("claude", 0.0)]
    judged = sum(dict(e.numbers)["judged"] for e in tries)
    assert [a.verb for a in by.asked].count("try") == judged
    assert len(experiments(ledger)) + judged >= 4


def test_what_is_wrong_with_a_try_is_said(where: Path, ledger: Ledger) -> None:
    said: list[str] = []

    def turn(job: Job, n: int) -> Turn:
        assert job.ask is not None
        said.append(job.ask(((PATH, text(l1="int fast;")),)))
        return edit(PATH, text(l1="int fast;"))

    by = judge(lambda c, a: reject(model.Reason.WRONG, "out[3]: got 1, expected 2"))
    roster = Roster((Member(proposer(ScriptedAgent("claude", turn))),), flights=Threads(1))
    go(where, ledger, roster, by, experiments=3)
    assert said[0] == "reject: wrong result: out[3]: got 1, expected 2"


# --------------------------------------------------------------------------------------------- from outside


def post(ledger: Ledger, message: outside.Try | outside.Submit) -> None:
    ledger.post(outside.TRY if isinstance(message, outside.Try) else outside.SUBMIT, outside.encode(message))


def test_a_change_that_is_submitted_is_judged_like_any_other(where: Path, ledger: Ledger) -> None:
    post(ledger, outside.Try("t1", ((PATH, text(l3="int fast;")),)))
    post(ledger, outside.Submit("s1", ((PATH, text(l3="int fast;")),), 1, "by hand\x1b[31m", author="me"))

    def on_event(event: model.Event) -> None:
        if event.experiment is not None and event.experiment.n == 2:
            ledger.post("stop")

    end = go(where, ledger, Roster((), outside=True), judge(), on_event=on_event)
    (asked,) = notes(ledger, "try")
    assert (asked.about, asked.text[:11]) == ("t1", "It is right")
    (turn,) = (e.turn for e in notes(ledger, "turn") if e.turn)
    one = experiments(ledger)[1]
    assert (turn.session, turn.edit, one.edit) == ("s1", one.edit, turn.edit)
    assert (one.proposer, one.title, one.verdict.kind, end.state) == ("me", "by hand [31m", "keep", "stopped")


def test_what_is_submitted_against_an_old_champion_is_rebased(where: Path, ledger: Ledger) -> None:
    post(ledger, outside.Submit("s1", ((PATH, text(l3="int fast;")),), 1, "one"))
    post(ledger, outside.Submit("s2", ((PATH, text(l15="int fast;")),), 1, "two"))
    post(ledger, outside.Submit("s3", ((PATH, text(l3="int faster;")),), 1, "three"))
    post(ledger, outside.Submit("s4", (), 99, "four"))
    post(ledger, outside.Submit("s5", ((PATH, text(l1="int x;")),), 1, "five"))

    def on_event(event: model.Event) -> None:
        if event.experiment is not None and event.experiment.title == "five":
            ledger.post("stop")

    end = go(where, ledger, Roster((), outside=True), judge(), on_event=on_event)
    assert [(e.title, e.verdict.kind) for e in experiments(ledger)[1:]] == [("one", "keep"), ("two", "keep"), ("five", "revert")]
    assert kit.git(where, "show", f"{end.branch}:./{PATH}").encode() == text(l3="int fast;", l15="int fast;")
    assert ["both change the same lines" in e.text for e in notes(ledger, "returned")] == [True]
    assert any("`submit" in e.text and "experiment 99 are not stored" in e.text for e in notes(ledger, "note"))


def test_a_run_without_anybody_who_takes_it_says_so(where: Path, ledger: Ledger) -> None:
    post(ledger, outside.Submit("s1", ((PATH, text(l3="int fast;")),), 1, "one"))
    loop.run(kit.session(where, ledger, (), judge()))
    assert any("takes no changes from outside" in e.text for e in notes(ledger, "note"))


def test_garbage_in_the_inbox_is_said_and_left_aside(where: Path, ledger: Ledger) -> None:
    for words in ("", "{", '{"id": 3}', "[" * 100_000, '{"id": "a", "changed": [["k", "!!"]]}'):
        ledger.post("try", words)
        ledger.post("submit", words)
    ledger.post("stop")
    assert go(where, ledger, Roster((), outside=True), judge()).state == "stopped"
    assert len(notes(ledger, "note")) >= 10


def test_nothing_is_judged_while_a_run_is_paused_and_no_hours_are_spent(where: Path, ledger: Ledger) -> None:
    clock = kit.FakeClock(tick=0.01)
    ledger.post("pause")

    def on_event(event: model.Event) -> None:
        if event.text.startswith("paused"):
            clock.sleep(7200)
            ledger.post("pause", "off")

    task = kit.task(where, budget=model.Budget(hours=1.0))
    session = kit.session(where, ledger, kit.proposals(kit.kernel(1)), judge(), task_=task, on_event=on_event, clock=clock)
    end = loop.run(session)
    assert (end.state, len(experiments(ledger))) == ("deck-done", 2)


# --------------------------------------------------------------------------------------------- who gets how much


def test_money_is_divided_among_those_who_begin(where: Path, ledger: Ledger) -> None:
    limits: list[float | None] = []
    both = threading.Barrier(2, timeout=LONG_S)

    def turn(job: Job, n: int) -> Turn:
        limits.append(job.limits.dollars)
        if n == 0:
            both.wait()
        return edit(PATH, text(l1=f"int a{next(NUMBERS)};"))

    agents = ScriptedAgent("a", turn), ScriptedAgent("b", turn)
    roster = Roster(tuple(Member(proposer(a)) for a in agents), flights=Threads(2))
    task = kit.task(where, budget=model.Budget(experiments=3, dollars=10.0))
    loop.run(replace(kit.session(where, ledger, (), judge(), task_=task), proposer=roster))
    assert limits[:2] == [4.5, 4.5]  # a tenth is kept back; neither can spend the other's


def test_two_agents_work_on_two_ideas(where: Path, ledger: Ledger) -> None:
    both = threading.Barrier(2, timeout=LONG_S)

    def turn(job: Job, n: int) -> Turn:
        if n == 0:
            both.wait()
        return edit(PATH, text(l1=f"int a{next(NUMBERS)};"))

    for words in ("keep the row", "two rows a turn"):
        ledger.add_idea(kit.task(where).name, words)
    agents = ScriptedAgent("a", turn), ScriptedAgent("b", turn)
    go(where, ledger, Roster(tuple(Member(proposer(a)) for a in agents), flights=Threads(2)), judge(), experiments=3)
    assert sorted(e.turn.idea or 0 for e in notes(ledger, "turn")[:2] if e.turn) == [1, 2]
