"""Two hundred experiments by agents that fail in every third turn: are the keeps right, is nothing left, is every token counted?

    python benchmarks/agents_soak.py [--experiments 200] [--turns 30] [--out FILE]

Loop, ledger, git, roster, brief, cage, HTTP and processes are the real ones. One agent is a model behind an API, scripted on loopback; the
other is a program in the place of a CLI, which asks the same scripted model and does what it is told: crash, hang, leave processes behind.
The judge is recorded: it keeps a value that ends in 0, rejects one that ends in 1, and reverts the others. Afterwards: what an agent's turn
costs besides the agent, with a program that ends at once. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from keepfast import loop, model
from keepfast.crew import crew_of
from keepfast.ledger import Ledger
from keepfast.propose.agent import Agent, Limits, Usage
from keepfast.propose.agents import AgentProposer
from keepfast.propose.chat import ChatAgent
from keepfast.propose.chat import named as model_named
from keepfast.propose.chat.edits import Whole, render
from keepfast.propose.command import built_in
from keepfast.propose.command.agent import CommandAgent, Setup
from keepfast.propose.command.base import Options, Spec, Variable
from keepfast.propose.command.cage import find_cage
from keepfast.propose.flights import Flights, OneAtATime, Threads
from keepfast.propose.prices import Price, cost
from keepfast.propose.roster import Member, Roster
from keepfast.propose.standing import Rules
from keepfast.repo import Repo
from keepfast.settings import agents_path
from keepfast.testing import RecordedJudge, keep, reject, revert
from keepfast.testing.model_script import Endless, HalfStream, Refuse, Reply, Say, Status
from keepfast.testing.model_server import ModelServer

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.loop import kit  # noqa: E402

FAULTS = 0.3  # of the turns
REFUSES_EVERY = 20  # turns: two refusals in a row would switch it off
HANGS_AT = (15, 60)  # turns
LIMITS = Limits(seconds=15.0)
WEIGHTS = {"chat": 1.0, "cli": 2.5}  # a program takes longer to start than a request, and should have its share all the same
PRICE = Price(2.0, 10.0, 0.2)
ORPHAN = f"4242.{os.getpid()}"  # seconds that a process sleeps which a turn left behind, told apart from another soak's
FAILED_OPENLY = (Status(500), Status(503), Status(429, retry_after=0.01), HalfStream(), HalfStream(clean=True))
DEEDS = ("orphan", "crash", "signal", "nothing", "outside", "flood", "link")

STAND_IN = """\
#!{python} -IS
import json, os, signal, subprocess, sys, time, urllib.request
if "--version" in sys.argv:
    sys.exit(print("stand-in 1.0.0"))
def say(**event):
    print(json.dumps(event), flush=True)
tool = {{"type": "function", "function": {{"name": "edit", "parameters": {{}}}}}}
body = json.dumps({{"model": "scripted", "messages": [{{"role": "user", "content": "?"}}], "tools": [tool]}}).encode()
asked = urllib.request.Request(os.environ["AT"] + "/v1/chat/completions", body, {{"content-type": "application/json"}})
answer = json.load(urllib.request.urlopen(asked))
told, used = json.loads(answer["choices"][0]["message"]["content"]), answer["usage"]
read = used["prompt_tokens_details"]["cached_tokens"]
tokens = {{"input": used["prompt_tokens"] - read, "output": used["completion_tokens"], "cache": {{"read": read, "write": 0}}}}
say(type="step_finish", sessionID="s", part={{"reason": "tool-calls", "tokens": tokens, "cost": 0}})
do = told["do"]
if do != "nothing":
    open("kernel/cli.h", "w").write(told["text"])
if do == "orphan":
    for _ in range(3):
        subprocess.Popen(["sleep", {orphan!r}], start_new_session=True, preexec_fn=lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN))
if do == "crash":
    sys.exit(3)
if do == "signal":
    os.kill(os.getpid(), signal.SIGKILL)
if do == "outside":
    open("other.h", "w").write("no")
if do == "flood":
    sys.stdout.write("x" * 3_000_000 + chr(10))
if do == "link":
    os.remove("kernel/kernel.c"); os.symlink("/etc/passwd", "kernel/kernel.c")
if do == "hang":
    time.sleep(1000)
say(type="text", sessionID="s", part={{"text": "Title: " + told["text"].strip()}})
say(type="step_finish", sessionID="s", part={{"reason": "stop", "tokens": {{}}, "cost": 0}})
"""
AT_ONCE = """\
#!/bin/sh
if [ "$1" = --version ]; then echo 1.0.0; exit; fi
echo "int cli = $(date +%s%N);" > kernel/cli.h
echo '{"type":"text","sessionID":"s","part":{"text":"Title: at once"}}'
echo '{"type":"step_finish","sessionID":"s","part":{"reason":"stop","tokens":{"input":10,"output":1},"cost":0}}'
"""


class Soak(Struct, frozen=True):
    """`faults`: turns of the scripts that were served with one. `tokens`: by the ledger, by its experiments, and by the servers. `dollars`:
    by the ledger, and of the answers that the servers sent whole; an answer that broke off is billed too, and estimated by its length.
    """

    experiments: int
    seconds: float
    turns: dict[str, int]
    faults: int
    fault_share: float
    keeps: int
    keeps_right: bool
    branch_right: bool
    judged_twice: int
    tokens: tuple[int, int, int]
    tokens_exact: bool
    dollars: tuple[float, float]
    dollars_enough: bool
    processes_left: int
    files_open: tuple[int, int]
    switches: dict[str, int]


class Overhead(Struct, frozen=True):
    """Seconds from a verdict to the next one, in quartiles, of which the agent itself takes `agent_s`. The rest is brief, workspace, cage,
    ledger and git.
    """

    turns: int
    cage: str
    agent_s: tuple[float, float, float]
    between_s: tuple[float, float, float]
    overhead_s: float


class Found(Struct, frozen=True):
    date: str
    cores: int
    load: float
    python: str
    soak: Soak
    overhead: Overhead


# --------------------------------------------------------------------------------------------- what the model says


class Script:
    """What a scripted model answers, turn after turn, with what is injected; once `over`, an answer without an end."""

    def __init__(self, who: str, seed: int) -> None:
        self.who, self.over, self.faults, self.begun = who, False, 0, 0
        self._chance = random.Random(seed)
        self._replies = self._endlessly()

    def __call__(self, n: int) -> Reply:
        return Endless() if self.over else next(self._replies)

    def _endlessly(self) -> Iterator[Reply]:
        while True:
            self.begun += 1
            usage = Usage(self._chance.randrange(1000, 9000), self._chance.randrange(10, 900), self._chance.randrange(0, 900))
            faulty = self._chance.random() < FAULTS or self.begun in HANGS_AT or self.begun % REFUSES_EVERY == 0
            self.faults += faulty
            yield from (self._chat(usage, faulty) if self.who == "chat" else self._cli(usage, faulty))

    def _text(self) -> str:
        return f"int {self.who} = {self.begun};\n"

    def _chat(self, usage: Usage, faulty: bool) -> Iterator[Reply]:
        good = f"TITLE: {self._text()}\n{render([Whole('kernel/chat.h', self._text())])}"
        if self.begun in HANGS_AT:
            yield Endless()
        elif self.begun % REFUSES_EVERY == 0:
            yield Refuse(usage=usage)
        elif faulty:
            missed = "<<<<<<< SEARCH kernel/chat.h\nnot there\n=======\nnor this\n>>>>>>> REPLACE\n"
            wrong = (Say(missed, usage=usage), Say("I would rather talk.", usage=usage), Say(good.replace(">>>>>>> END", ""), usage=usage))
            yield self._chance.choice((*FAILED_OPENLY, *wrong))
        if self.begun not in HANGS_AT:
            yield Say(good, usage=usage)

    def _cli(self, usage: Usage, faulty: bool) -> Iterator[Reply]:
        deed = "hang" if self.begun in HANGS_AT else self._chance.choice(DEEDS) if faulty else "edit"
        yield Say(json.dumps({"do": deed, "text": self._text()}), usage=usage)


# --------------------------------------------------------------------------------------------- the run


def stand_in(folder: Path, text: str) -> Path:
    program = folder / "bin" / "stand-in"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(text)
    program.chmod(0o755)
    return program


def cli(folder: Path, program: Path, at: str = "") -> CommandAgent:
    """The program as an agent whose output is read as OpenCode's is."""
    like: Spec = built_in("opencode")
    spec = replace(like, name="cli", program=str(program), environment=(Variable("AT", at),) if at else ())
    setup = Setup(folder / "agent", find_cage(agents_path(), isolate=False), price=lambda model, usage: cost(PRICE, usage))
    return CommandAgent(spec, setup, Options(program=str(program)), "cli")


def chat(url: str) -> ChatAgent:
    """A model behind an API, that is asked again sooner than one should ask a stranger."""
    options = replace(model_named(f"chat:scripted@{url}/v1"), first_wait_s=0.01, longest_wait_s=0.1)
    return ChatAgent(options, price=lambda model, usage: cost(PRICE, usage), key=lambda provider: "")


def subject(candidate: model.Candidate, against: model.Candidate) -> tuple[str, int]:
    """Which agent's file differs from the champion's, and its value."""
    old = {f.path: f.data for f in against.files}
    changed = [f.data.decode() for f in candidate.files if old.get(f.path) != f.data]
    found = re.fullmatch(r"int (chat|cli) = (\d+);\n", changed[0]) if len(changed) == 1 else None
    if found is None:
        raise SystemExit(f"an experiment changed what nobody asked for: {changed}")
    return found[1], int(found[2])


def kind(value: int) -> model.Kind:
    return {0: model.Kind.KEEP, 1: model.Kind.REJECT}.get(value % 10, model.Kind.REVERT)


def session(where: Path, ledger: Ledger, by: RecordedJudge, agents: tuple[Agent, ...], experiments: int, flights: Flights) -> loop.Session:
    task = kit.task(where, budget=model.Budget(experiments=experiments + 1, dollars=10_000.0))
    made = kit.session(where, ledger, (), by, task_=task, clock=time)
    text = crew_of(ledger, made.run).text
    members = tuple(Member(AgentProposer(agent, text, LIMITS), weight=WEIGHTS[agent.name.partition(":")[0]]) for agent in agents)
    return replace(made, proposer=Roster(members, Rules(retry=0.2), flights=flights))


def soak(folder: Path, experiments: int) -> Soak:
    where, files_before = kit.repository(folder / "repository"), _files()
    scripts = {name: Script(name, seed) for seed, name in enumerate(("chat", "cli"))}
    judged = dict[int, tuple[str, int]]()
    with (
        ModelServer(scripts["chat"]) as at_chat,
        ModelServer(scripts["cli"]) as at_cli,
        Ledger.open(Repo.find(where).ensure_state()) as ledger,
    ):
        program = stand_in(folder, STAND_IN.format(python=sys.executable, orphan=ORPHAN))
        agents = (chat(at_chat.url), cli(folder, program, at_cli.url))
        servers, flights = dict(zip((a.name for a in agents), (at_chat, at_cli), strict=True)), Threads(2)

        def verdict(candidate: model.Candidate, against: model.Candidate) -> model.Verdict:
            judged[candidate.n] = subject(candidate, against)
            value = judged[candidate.n][1]
            if candidate.n == experiments + 1:
                _quiet(scripts, servers, flights)
            return {model.Kind.KEEP: keep(1.01), model.Kind.REJECT: reject()}.get(kind(value), revert())

        began = time.monotonic()
        by = RecordedJudge(verdict, logs=lambda c: -0.01)
        end = loop.run(session(where, ledger, by, agents, experiments, flights))
        took = time.monotonic() - began
        found = _found(ledger, end, judged, (at_chat, at_cli), kit.git(where, "rev-parse", "--show-toplevel").strip())
    begun = sum(s.begun for s in scripts.values())
    faults = sum(s.faults for s in scripts.values())
    return replace(
        found,
        seconds=round(took, 1),
        faults=faults,
        fault_share=round(faults / begun, 3),
        processes_left=_left(at_cli.url),
        files_open=(files_before, _files()),
    )


def _quiet(scripts: dict[str, Script], servers: dict[str, ModelServer], flights: Threads) -> None:
    """Nothing more is said; and whoever has heard something has come back with it. What was said to a turn that the end of the run cuts
    off would be known to the server alone."""
    for script in scripts.values():
        script.over = True
    end = time.monotonic() + 2 * LIMITS.seconds
    while time.monotonic() < end:
        waiting = [servers[f.name].asked[-1].reply for f in flights.aloft]
        if all(isinstance(reply, Endless) for reply in waiting):
            return
        time.sleep(0.02)
    raise SystemExit("an agent did not come back after its last answer")


def _found(ledger: Ledger, end: model.End, judged: dict[int, tuple[str, int]], servers: tuple[ModelServer, ...], root: str) -> Soak:
    tried = ledger.experiments(end.run.id)[1:]
    kinds = [e.verdict.kind for e in tried]
    last = {who: value for who, value in judged.values() if kind(value) is model.Kind.KEEP}
    shown = {who: kit.git(Path(root), "show", f"{end.branch}:tasks/soft max é/kernel/{who}.h") for who in last}
    usages = [server.usage() for server in servers]
    served, paid = sum(u.tokens for u in usages), sum(cost(PRICE, u) or 0.0 for u in usages)
    dollars, tokens = ledger.spent(end.run.id)
    notes = ledger.notes(end.run.id)
    return Soak(
        experiments=len(tried),
        seconds=0.0,
        turns=_counted(f"{e.turn.proposer.partition(':')[0]} {e.turn.outcome}" for e in notes if e.turn is not None),
        faults=0,
        fault_share=0.0,
        keeps=kinds.count(model.Kind.KEEP),
        keeps_right={e.n: e.verdict.kind for e in tried} == {n: kind(value) for n, (_, value) in judged.items()},
        branch_right=shown == {who: f"int {who} = {value};\n" for who, value in last.items()},
        judged_twice=len(tried) - len({*judged.values()}),
        tokens=(tokens, sum(e.tokens for e in tried), served),
        tokens_exact=tokens == served,
        dollars=(round(dollars, 6), round(paid, 6)),
        dollars_enough=paid - 1e-6 <= dollars < 1.2 * paid,
        processes_left=0,
        files_open=(0, 0),
        switches=_counted(f"{e.switch.proposer.partition(':')[0]} {e.switch.state}" for e in notes if e.switch is not None),
    )


def _counted(words: Iterator[str]) -> dict[str, int]:
    found = list(words)
    return {word: found.count(word) for word in sorted({*found})}


def _files() -> int:
    return len(os.listdir("/proc/self/fd"))


def _left(at: str) -> int:
    """Processes that turns of this soak started, after everything has ended: they know its server, or sleep as its orphans do."""
    found = 0
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            environment, words = ((place / name).read_bytes().split(b"\0") for name in ("environ", "cmdline"))
            found += f"AT={at}".encode() in environment or ORPHAN.encode() in words
    return found


# --------------------------------------------------------------------------------------------- what a turn costs besides


def overhead(folder: Path, turns: int) -> Overhead:
    where, program = kit.repository(folder / "quick"), stand_in(folder / "quick-agent", AT_ONCE)
    agent = cli(folder / "quick-agent", program)
    ended, between = [0.0], list[float]()

    def verdict(candidate: model.Candidate, against: model.Candidate) -> model.Verdict:
        between.append(time.monotonic() - ended[0])
        made = revert()
        ended[0] = time.monotonic()
        return made

    with Ledger.open(Repo.find(where).ensure_state()) as ledger:
        loop.run(session(where, ledger, RecordedJudge(verdict, logs=lambda c: 0.0), (agent,), turns + 1, OneAtATime()))
    alone = [_alone(program, folder / "quick-agent" / "alone") for _ in range(turns)]
    own, rest = _quartiles(alone), _quartiles(between[1:])  # the first turn also asks for the version, once
    return Overhead(turns, type(agent.setup.cage).__name__, own, rest, round(rest[1] - own[1], 4))


def _alone(program: Path, place: Path) -> float:
    (place / "kernel").mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    subprocess.run([str(program), "run"], cwd=place, check=True, capture_output=True, stdin=subprocess.DEVNULL)
    return time.monotonic() - began


def _quartiles(seconds: list[float]) -> tuple[float, float, float]:
    low, middle, high = statistics.quantiles(seconds, n=4)
    return round(low, 4), round(middle, 4), round(high, 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--experiments", type=int, default=200)
    parser.add_argument("--turns", type=int, default=30, help="for what a turn costs")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "agents_soak.json")
    given = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        soaked = soak(Path(name), given.experiments)
        cost_of = overhead(Path(name), given.turns)
    found = Found(time.strftime("%Y-%m-%d"), os.cpu_count() or 0, round(load, 2), sys.version.split()[0], soaked, cost_of)
    given.out.write_bytes(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
    _print(found)
    s = soaked
    if not (s.keeps_right and s.branch_right and s.tokens_exact and s.dollars_enough) or s.processes_left or s.judged_twice:
        raise SystemExit("something was lost, left or miscounted")


def _print(found: Found) -> None:
    s, o = found.soak, found.overhead
    print(f"{s.experiments} experiments in {s.seconds} s, faults in {100 * s.fault_share:.0f} % of the scripted turns: {s.turns}")
    print(f"{s.keeps} keeps, all right: {s.keeps_right and s.branch_right}; judged twice: {s.judged_twice}")
    print(f"tokens: ledger {s.tokens[0]}, servers {s.tokens[2]}; dollars {s.dollars[0]} and {s.dollars[1]}")
    print(f"processes left: {s.processes_left}; open files {s.files_open[0]} before, {s.files_open[1]} after; switches {s.switches}")
    print(f"a turn costs {1000 * o.overhead_s:.0f} ms besides its agent ({o.cage}, {o.turns} turns, load {found.load})")


if __name__ == "__main__":
    main()
