"""Is the judge ever idle while a proposal waits? Two scripted agents whose turns take so many seconds, a judge that takes a few.

The loop, ledger, git, roster and threads are the real ones; the judge is recorded and sleeps as long as a real evaluation takes. Prints and
stores how long edits waited for what, and how busy the judge was. Usage: overlap.py [--turn 20] [--judge 4] [--turns 12] [--out FILE]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from keepfast import loop, model
from keepfast.ledger import Ledger
from keepfast.propose.agent import Job, Turn
from keepfast.propose.flights import Threads
from keepfast.propose.roster import Member, Roster
from keepfast.repo import Repo
from keepfast.testing import RecordedJudge, ScriptedAgent, ScriptedProposer, edit, proposer, revert

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.loop import kit  # noqa: E402

PATH = "kernel/kernel.c"


class Found(Struct, frozen=True):
    """`waited_s`: of each agent's edit, from its landing to its evaluation; `behind_s`: the part of it in which the judge judged others."""

    date: str
    turn_seconds: float
    judge_seconds: float
    agents: int
    edits: int
    experiments: int
    seconds: float
    waited_s: tuple[float, ...]
    behind_s: tuple[float, ...]
    idle_while_waiting_s: float  # the most of any edit
    busy_share: float
    busy_share_without_overlap: float  # what it would be, one turn after the other


class Clocked:
    """When the judge began and ended, and when edits landed."""

    def __init__(self, judge_seconds: float) -> None:
        self.judge_seconds, self.spans = judge_seconds, list[tuple[float, float, str]]()
        self.landed: dict[str, float] = {}
        self.lock = threading.Lock()

    def verdict(self, candidate: model.Candidate, against: model.Candidate) -> model.Verdict:
        began = time.monotonic()
        time.sleep(self.judge_seconds)
        self.spans.append((began, time.monotonic(), candidate.files[0].data.decode()))
        return revert()

    def agent(self, name: str, seconds: float) -> ScriptedAgent:
        def turn(job: Job, n: int) -> Turn:
            time.sleep(seconds)
            text = f"int {name}{n};\n"
            with self.lock:
                self.landed[text] = time.monotonic()
            return edit(PATH, text.encode(), title=f"{name} {n}")

        return ScriptedAgent(name, turn)


def measured(where: Path, turn: float, judge: float, turns: int) -> Found:
    clocked = Clocked(judge)
    agents = tuple(Member(proposer(clocked.agent(name, turn))) for name in ("a", "b"))
    free = tuple(model.Proposal(f"s{i}", "scripted", model.Files(((PATH, f"int s{i};\n".encode()),))) for i in range(10_000))
    roster = Roster((Member(ScriptedProposer(free), "search"), *agents), flights=Threads(2))
    began = time.monotonic()

    with Ledger.open(Repo.find(where).ensure_state()) as ledger:

        def on_event(event: model.Event) -> None:
            if len(clocked.landed) >= turns:
                ledger.post("stop")

        by = RecordedJudge(clocked.verdict, logs=lambda c: 0.0)
        task = kit.task(where, budget=model.Budget(experiments=10_000))
        session = kit.session(where, ledger, (), by, task_=task, on_event=on_event, clock=time)
        loop.run(replace(session, proposer=roster))
    return summed(clocked, (turn, judge), time.monotonic() - began)


def summed(clocked: Clocked, given: tuple[float, float], took: float) -> Found:
    begun = {text: start for start, _, text in clocked.spans}
    judged = [text for text in clocked.landed if text in begun]
    waited = [begun[t] - clocked.landed[t] for t in judged]
    behind = [sum(max(0.0, min(end, begun[t]) - max(start, clocked.landed[t])) for start, end, _ in clocked.spans) for t in judged]
    busy = sum(end - start for start, end, _ in clocked.spans)
    turn, judge = given
    return Found(
        time.strftime("%Y-%m-%d"), turn, judge, 2, len(judged), len(clocked.spans), took, tuple(waited), tuple(behind),
        max(w - b for w, b in zip(waited, behind, strict=True)), busy / took, judge / (judge + turn),
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--turn", type=float, default=20.0)
    parser.add_argument("--judge", type=float, default=4.0)
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "overlap.json")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        found = measured(kit.repository(Path(name)), given.turn, given.judge, given.turns)
    given.out.write_bytes(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
    print(f"{found.edits} edits of {found.agents} agents, {found.experiments} experiments in {found.seconds:.0f} s")
    print(f"the judge was idle while an edit waited for at most {found.idle_while_waiting_s * 1000:.0f} ms")
    alone = 100 * found.busy_share_without_overlap
    print(f"busy {100 * found.busy_share:.0f} % of the time; one after the other, without a sweep: {alone:.0f} %")


if __name__ == "__main__":
    main()
