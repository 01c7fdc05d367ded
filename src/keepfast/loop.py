"""The loop: propose, judge, keep or revert, remember; until the goal is met, the budget ends or nothing is left.

Owns the order of things, and so what a kill at any instant can and cannot lose: a candidate is a commit before it is judged, a
verdict is in the ledger before the branch moves, and everything that decides what comes next is read from the ledger. Must not
know how anything is judged, proposed or stored.
"""

from __future__ import annotations

from msgspec.structs import replace

from keepfast import crash, lifecycle
from keepfast.desk import RunDesk
from keepfast.errors import MachineError, UsageError
from keepfast.interrupt import Interrupt
from keepfast.ledger import Command
from keepfast.materialise import Workshop, refusal, tree_hash
from keepfast.model import (
    SENTENCES,
    BaselineResult,
    Begin,
    Budget,
    Candidate,
    Direct,
    End,
    Event,
    Experiment,
    Fact,
    File,
    Kind,
    Patch,
    Proposal,
    Reason,
    Verdict,
)
from keepfast.progress import Progress, Spent, left, raised, said, spent_out
from keepfast.propose import outside, tries
from keepfast.propose.agents import edited, submitted
from keepfast.propose.base import Brief, Idle, Lasting, Purse
from keepfast.propose.outside import NAME
from keepfast.repo import Change
from keepfast.session import Clock, Judge, Session

__all__ = ["Clock", "Judge", "Session", "run"]

DIRECT_ROUNDS = 6
VOID_WAITS = (2.0, 10.0, 30.0)  # seconds before a void evaluation is run again
VOIDS_IN_A_ROW = 5  # void experiments after which the machine, not the candidates, is the news
IDLE = 0.5  # seconds between two looks at the inbox while everyone sleeps
STORED = 16 << 20  # bytes; a candidate above the guard's own cap is judged, and refused, without being stored


def run(session: Session) -> End:
    """Begin or resume, then turn after turn until it ends. UsageError when another run holds the ledger; KeyboardInterrupt only
    while the start is still being judged."""
    with session.ledger.hold(session.run.id), Interrupt(lambda: session.on_event(Event("note", STOPPING))) as interrupt:
        loop = _Loop(session, interrupt)
        loop.begin()
        try:
            state, why = _turns(loop)
            loop.leave()
            return loop.close(state, why)
        except KeyboardInterrupt:
            return loop.interrupted()
        except (MachineError, UsageError):
            session.ledger.end(session.run.id, "interrupted")
            raise


STOPPING = "stopping after this experiment; Ctrl-C again stops at once"
Ended = tuple[str, str]  # state, and why


def _turns(loop: _Loop) -> Ended:
    while not (ended := loop.asked_to_stop() or loop.goal_met() or loop.budget_over()):
        if loop.paused:
            loop.pause()
            continue
        started = loop.now()
        proposal = loop.propose()
        if not isinstance(proposal, Proposal):
            if ended := loop.idle(proposal):
                return ended
            continue
        candidate = loop.materialise(proposal)  # committed; or the verdict on a change that cannot be made
        verdict = candidate if isinstance(candidate, Verdict) else loop.known(candidate) or loop.judge(candidate)
        loop.append(proposal, candidate, verdict, started)
        loop.settle(candidate, verdict)
    return ended


class _Loop:
    """The state of a run between turns. All of it follows from the ledger; nothing is decided from anything else."""

    def __init__(self, session: Session, interrupt: Interrupt) -> None:
        self.s, self.interrupt = session, interrupt
        self.ledger, self.repo, self.run = session.ledger, session.repo, session.run
        self.workshop = Workshop(session.task, session.repo)
        self.desk = RunDesk(session, self.workshop, self.tried)
        self.resting = ""  # what is waited for, so that it is said once
        self.began = session.clock.monotonic()
        self.budget: Budget = session.task.budget
        self.hours_before = 0.0  # of earlier sessions
        self.hours_paused = 0.0
        self.stop = self.paused = False
        self.woken = False  # by something from outside that is worth another turn
        self.history: tuple[Experiment, ...] = ()
        self.counted = self.dry = 0
        self.progress = Progress(session.task, ())
        self.champion = Candidate((), "", "")

    # ---------------------------------------------------------------------------------- beginning and resuming

    def begin(self) -> None:
        """Judge the start, or, on resume, only make the judge ready; then stand where the ledger says the run stands."""
        opened = self.s.clock.time()
        start = self.workshop.at(self.run.base, 1)
        known = self.ledger.calibration(self.run.machine.hash, self.run.task_hash)
        begun = self.s.judge.begin(start, known)
        lifecycle.check_begun(self.s.task, begun)
        crash.point("begun")
        if begun.calibration is not None and begun.calibration != known:
            self.ledger.add_calibration(self.run.task_hash, begun.calibration)
        self._write_down(begun, start, opened)
        self._stand()
        self.hours_before = sum(e.seconds for e in self.history) / 3600
        self.emit(Event("run", self.run.id, n=len(self.history)))
        self._old_commands(opened)

    def _write_down(self, begun: Begin, start: Candidate, opened: float) -> None:
        """What of the beginning is not in the ledger yet, in order."""
        if self.run.id not in (r.id for r in self.ledger.runs()):
            self.ledger.start(self.run)
        self.ledger.end(self.run.id, "running")
        crash.point("run-started")
        self._write_baselines(begun.baselines)
        if self.ledger.champion(self.run.id) is None:
            self.repo.ensure_state()
            self.repo.mark(self.run.id, 1, start.commit)
            crash.point("start-marked")
            seconds = self.s.clock.time() - opened
            proposal = Proposal("the kernel the run began with", "start", Patch(""))
            first = self._experiment(proposal, start, begun.verdict, (1, opened, seconds))
            self.ledger.append(self.run.id, first)
            crash.point("start-appended")
            self.s.on_event(Event("verdict", experiment=first, n=1))

    def _write_baselines(self, found: tuple[BaselineResult, ...]) -> None:
        stored = {b.name for b in self.ledger.baselines(self.run.id)}
        for result in found:
            if result.name not in stored:
                self.ledger.add_baseline(self.run.id, result)
                crash.point("baseline-stored")

    def _stand(self) -> None:
        """Read the run back: history, progress, champion; and put the branch where the last keep says."""
        self.history, self.counted, self.dry = (), 0, 0
        self.progress = Progress(self.s.task, (), self.ledger.directs(self.run.id), self.ledger.baselines(self.run.id))
        for experiment in self.ledger.experiments(self.run.id):
            self._remember(experiment)
        self.desk.read_back()
        self.desk.settle_ideas(self.history)
        keeps = self.progress.keeps
        self.champion = self.workshop.at(keeps[-1].commit, keeps[-1].n)
        self.repo.heal(self.run.id)
        self._move_branch()

    def _remember(self, experiment: Experiment) -> None:
        """Take an experiment into what the next turn decides from. Its raw rounds stay in the ledger."""
        verdict = experiment.verdict
        slim = replace(experiment, verdict=replace(verdict, rounds=()))
        self.history = (*self.history, slim)
        self.counted += verdict.kind is not Kind.VOID
        self.dry = 0 if verdict.kept else self.dry + (verdict.kind is not Kind.VOID)
        if verdict.kept:
            self.progress = replace(self.progress, keeps=(*self.progress.keeps, slim))

    def _old_commands(self, opened: float) -> None:
        """Commands that an earlier session of this run took, and those posted before this one; a `stop` was meant for that one."""
        for command in self.ledger.commands(self.run.id):
            if command.command in ("budget", "clear"):
                self._obey(command)
        for command in self.ledger.take(self.run):
            if command.command != "stop" or command.when >= opened:
                self._obey(command)

    # ---------------------------------------------------------------------------------- what ends a run

    def asked_to_stop(self) -> Ended | None:
        for command in self.ledger.take(self.run):
            crash.point("inbox-taken", self.next_n)
            self._obey(command)
        return ("stopped", "asked to stop") if self.stop or self.interrupt.asked else None

    def goal_met(self) -> Ended | None:
        if self.progress.due():
            self._measure(self.progress.missing(), final=False)
        why = self.progress.met()
        return ("goal", f"goal met: {why}") if why else None

    def budget_over(self) -> Ended | None:
        recent = self.history[-VOIDS_IN_A_ROW:]
        if len(recent) == VOIDS_IN_A_ROW and all(e.verdict.kind is Kind.VOID for e in recent):
            what = f"this machine was not fit to judge {VOIDS_IN_A_ROW} experiments in a row: {recent[-1].verdict.detail}"
            raise MachineError(what, next_step="keepfast doctor, then keepfast run --resume")
        why = spent_out(self.budget, self._spent())
        return ("budget", f"budget: {why}") if why else None

    def _spent(self) -> Spent:
        hours = self.hours_before + (self.s.clock.monotonic() - self.began) / 3600 - self.hours_paused
        return Spent(self.counted + self.desk.tries, hours, self.ledger.spent(self.run.id)[0], self.dry)

    def _obey(self, command: Command) -> None:
        """A command that is not understood is said and left aside: nobody waits for an answer."""
        self.woken = True
        try:
            if command.command == "stop":
                self.stop = True
            elif command.command == "budget":
                self.budget = raised(self.budget, command.argument)
                self.emit(Event("note", f"budget: {left(self.budget, self._spent())} left"))
            elif command.command == "clear":
                self._clear(command.argument)
            elif command.command == "idea":
                self.emit(Event("note", f"new idea: {command.argument}"))
            elif command.command == "pause":
                self.paused = command.argument != "off"
            elif command.command == outside.TRY:
                self._try(outside.read_try(command.argument))
            elif command.command == outside.SUBMIT:
                self._submit(outside.read_submit(command.argument))
            else:
                self.emit(Event("note", f"unknown command `{command.command}` was ignored"))
        except UsageError as error:
            said = f"{command.command} {command.argument}" if len(command.argument) < 100 else command.command
            self.emit(Event("note", f"`{said}` was ignored: {error.what}"))

    def _clear(self, argument: str) -> None:
        number, _, because = argument.partition(" ")
        experiment = lifecycle.clear_held(self.ledger, self.repo, self.run, lifecycle.number(number), because)
        if experiment is not None:
            self.s.on_event(Event("verdict", experiment=experiment, n=experiment.n))
            self._stand()

    def _try(self, asked: outside.Try) -> None:
        """Somebody outside asks the judge; the answer is an event."""
        self.tried(edited(self.champion.files, asked.changed), NAME, asked.id)

    def _submit(self, given: outside.Submit) -> None:
        """Somebody outside hands in a change: as if it had been a turn of an agent."""
        if not isinstance(self.s.proposer, Lasting):
            raise UsageError("this run takes no changes from outside; keepfast run TASK --proposer search,mcp  does")
        self.desk.tell(submitted(given, self.brief()))

    def pause(self) -> None:
        """Nothing is judged, and no hours are spent, until somebody says go on, or stop."""
        began = self.s.clock.monotonic()
        self.emit(Event("note", "paused: keepfast pause --off   goes on"))
        while self.paused and not self.asked_to_stop():
            self._rest(IDLE)
        self.hours_paused += (self.s.clock.monotonic() - began) / 3600
        self.emit(Event("note", "going on"))

    # ---------------------------------------------------------------------------------- one turn

    @property
    def next_n(self) -> int:
        return len(self.history) + 1

    def now(self) -> tuple[float, float]:
        return self.s.clock.time(), self.s.clock.monotonic()

    def brief(self) -> Brief:
        """All that a proposer is told now."""
        spent = self._spent()
        told = Brief(self.s.task, self.champion, self.history, self.run.seed, left(self.budget, spent))
        return self.desk.brief(replace(told, purse=Purse(self.budget.dollars, spent.dollars)))

    def propose(self) -> Proposal | Idle | None:
        self.woken = False
        proposal = self.s.proposer.propose(self.brief())
        if isinstance(proposal, Proposal):
            self.resting = ""
            self.emit(Event("propose", proposal.title, n=self.next_n))
            crash.point("proposed", self.next_n)
        return proposal

    def idle(self, idle: Idle | None) -> Ended | None:
        """Wait a while for a proposer that has nothing now, and say so once; how the run ends when there never will be anything."""
        if idle is None or idle.until is None:
            why = idle.why if idle else "nothing is left to propose"
            return (idle.state, f"budget: {why}" if idle.state == "budget" else why) if idle else ("deck-done", why)
        if idle.why != self.resting:
            self.emit(Event("note", f"waiting: {idle.why}", n=self.next_n))
            self.resting = idle.why
        while not self.woken and (rest := idle.until - self.s.clock.time()) > 0:
            if idle.news is None:
                self._rest(min(IDLE, rest))
            elif idle.news(min(IDLE, rest)):
                return None
            if ended := self.asked_to_stop() or self.budget_over():
                return ended
        return None

    def tried(self, files: tuple[File, ...], who: str, about: str = "") -> str:
        """The judge's words on files that somebody tries; each time that it is asked counts as an experiment."""
        candidate = Candidate(files, tree_hash(files), "", self.next_n)
        known = self.known(candidate)
        verdict = known or self._evaluate(candidate, only_try=True)
        words = tries.said(verdict, self.champion.n)
        judged = float(known is None and verdict.kind is not Kind.VOID)
        self.desk.tell(Event("try", words, n=self.next_n, numbers=(("judged", judged),), about=about or who))
        return words

    def leave(self) -> None:
        """End what proposers have under way."""
        if isinstance(self.s.proposer, Lasting):
            self.s.proposer.close(self.brief())

    def materialise(self, proposal: Proposal) -> Candidate | Verdict:
        made = self.workshop.candidate(self.champion, proposal, self.next_n)
        if isinstance(made, Verdict) and isinstance(proposal.change, Patch):
            patch = self.ledger.put_artifact(proposal.change.diff.encode("utf-8", "replace"))  # there will be no commit that holds it
            rung = replace(made.rungs[0], facts=(*made.rungs[0].facts, Fact("patch", patch)))
            return replace(made, rungs=(rung,))
        return made if isinstance(made, Verdict) else self._commit(made)

    def known(self, candidate: Candidate) -> Verdict | None:
        """The verdict on files that were judged before, or None."""
        if candidate.tree == self.champion.tree:
            return refusal(Reason.NO_CHANGE, "")
        before = self.ledger.seen(self.run.id, candidate.tree)
        return refusal(Reason.SEEN, f"experiment {before.n}: {SENTENCES[before.verdict.reason][1]}") if before else None

    def judge(self, candidate: Candidate) -> Verdict:
        """The judge's verdict. What the machine spoilt is run again, a few times, and costs the candidate nothing."""
        verdict = self._evaluate(candidate)
        for wait in VOID_WAITS:
            if verdict.kind is not Kind.VOID or self.interrupt.asked:
                break
            self._wait(wait, verdict.detail)
            verdict = self._evaluate(candidate)
        crash.point("judged", candidate.n)
        return verdict

    def _evaluate(self, candidate: Candidate, *, only_try: bool = False) -> Verdict:
        try:
            return self.s.judge.evaluate(candidate, self.champion, self.progress.standing(), only_try=only_try)
        except MachineError as error:  # what the machine did is void, however the judge says so
            return Verdict(Kind.VOID, Reason.MACHINE, error.what)

    def _wait(self, seconds: float, why: str) -> None:
        """Give the machine time to become fit again; a first Ctrl-C ends the waiting."""
        self.emit(Event("note", f"void: {why}; again in {seconds:.0f} s", n=self.next_n))
        self._rest(seconds)

    def _rest(self, seconds: float) -> None:
        until = self.s.clock.monotonic() + seconds
        while not self.interrupt.asked and (rest := until - self.s.clock.monotonic()) > 0:
            self.s.clock.sleep(min(rest, 0.5))

    def _commit(self, candidate: Candidate) -> Candidate:
        if sum(len(f.data) for f in candidate.files) > STORED:
            return candidate
        change = Change(self.s.task.root, self.champion.files, candidate.files)
        message = f"Experiment {candidate.n} of run {self.run.id}\n"
        commit = self.repo.commit(self.run.id, candidate.n, self.champion.commit, change, message)
        crash.point("committed", candidate.n)
        return replace(candidate, commit=commit)

    def append(self, proposal: Proposal, candidate: Candidate | Verdict, verdict: Verdict, started: tuple[float, float]) -> None:
        made = candidate if isinstance(candidate, Candidate) else Candidate((), "", "", self.next_n)
        seconds = self.s.clock.monotonic() - started[1]
        experiment = self._experiment(proposal, made, verdict, (self.next_n, started[0], seconds))
        self.ledger.append(self.run.id, experiment)
        crash.point("appended", experiment.n)
        self._remember(experiment)
        self.s.on_event(Event("verdict", experiment=experiment, n=experiment.n))
        self.desk.settle_ideas(self.history)

    def settle(self, candidate: Candidate | Verdict, verdict: Verdict) -> None:
        if verdict.kept and isinstance(candidate, Candidate):
            self.champion = candidate
            self._move_branch()
            crash.point("settled", candidate.n)
            self.s.prove(candidate, verdict, len(self.progress.keeps) - 1)

    def _move_branch(self) -> None:
        if not lifecycle.settle(self.ledger, self.repo, self.run):
            self.emit(Event("note", f"branch {self.run.branch} is checked out, so it was not moved; the keeps are safe"))

    def _experiment(self, proposal: Proposal, candidate: Candidate, verdict: Verdict, when: tuple[int, float, float]) -> Experiment:
        return lifecycle.experiment(self.s.task, proposal, candidate, verdict, lifecycle.When(*when, self.champion.n))

    # ---------------------------------------------------------------------------------- direct measurements and the end

    def _measure(self, opponents: tuple[str, ...], final: bool) -> None:
        for opponent in opponents:
            direct = self._compare(opponent, final)
            crash.point("direct-measured", self.champion.n)
            self.ledger.add_direct(self.run.id, direct)
            self.progress = replace(self.progress, directs=(*self.progress.directs, direct))
            crash.point("direct-stored", self.champion.n)
            self.emit(Event("direct", said(direct), n=direct.n, direct=direct))

    def _compare(self, opponent: str, final: bool) -> Direct:
        """MachineError when the machine stays unfit: a champion that cannot be measured is not built upon."""
        for wait in VOID_WAITS:
            try:
                return self.s.judge.compare(self.champion, opponent, DIRECT_ROUNDS, final)
            except MachineError as error:
                self._wait(wait, error.what)
        return self.s.judge.compare(self.champion, opponent, DIRECT_ROUNDS, final)

    def close(self, state: str, why: str) -> End:
        """Measure the champion once more, in fresh rounds, and say what to ship. After a stop only what is missing is measured."""
        if self.progress.improved and state != "goal":
            done = {d.against for d in self.progress.directs if d.n == self.champion.n and d.final}
            again = self.progress.missing() if state == "stopped" else self.progress.opponents()
            self._measure(tuple(o for o in again if o not in done), final=True)
            if met := self.progress.met():
                state, why = "goal", f"goal met: {met}"
        return self._ended(state, why)

    def interrupted(self) -> End:
        return self._ended("interrupted", "interrupted; keepfast run --resume goes on from here")

    def _ended(self, state: str, why: str) -> End:
        crash.point("ending")
        self.ledger.end(self.run.id, state)
        crash.point("ended")
        end = lifecycle.end_of(replace(self.run, state=state), self.progress, self.history)
        end = replace(end, why=why, seconds=self.s.clock.monotonic() - self.began)
        self.emit(Event("end", why, n=end.champion.n))
        return end

    def emit(self, event: Event) -> None:
        """To whoever watches here, and to the ledger for whoever watches from elsewhere."""
        self.ledger.add_event(self.run.id, event)
        self.s.on_event(event)
