"""The brief: bounded whatever is in it, in one order, with nothing foreign outside a fence; and one small brief word for word."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from keepfast import model
from keepfast.context import CHARACTERS, Chosen, Device, Sheet, choose
from keepfast.errors import UsageError
from keepfast.model import Candidate, Experiment, Fact, Idea, Machine, Reason, Rung, Task
from keepfast.propose.base import Brief
from keepfast.propose.brief import LEAST, SECTIONS, TOKENS, text
from keepfast.propose.brief_facts import BriefFacts, Records, as_files, facts_of, need_of
from keepfast.propose.quote import Quote
from keepfast.task.load import load
from keepfast.task.paths import expand
from tests.report import samples

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(p.parent for p in (ROOT / "examples").glob("*pu/*/task.toml"))
H200 = Machine(
    cpu="a CPU",
    cores=16,
    kernel="6.1",
    compiler="gcc 13.3.0",
    walls="walls",
    gpu="NVIDIA H200",
    ceilings=(("copy_GBps", 3917.3), ("bfloat16_TFLOPs", 799.99)),
    hash="h" * 16,
)
LONG = "a title that goes on, with `marks` and words; " * 40


def candidate(task: Task, n: int = 1) -> Candidate:
    root = Path(task.root)
    return Candidate(tuple(model.File(p, (root / p).read_bytes()) for p in expand(root, task.editable)), "t", "", n)


def made_up(task: Task, count: int = 300) -> tuple[Experiment, ...]:
    """Experiments of every kind with long foreign text, sweeps among them, each timed case in each."""
    out: list[Experiment] = []
    champion, reasons = 1, [r for r in Reason if r not in (Reason.START, Reason.CLEARED, Reason.FASTER)]
    for n in range(1, count + 1):
        reason = Reason.START if n == 1 else Reason.FASTER if n % 25 == 0 else reasons[n % len(reasons)]
        kind = model.SENTENCES[reason][0]
        gain = samples.estimate(1.5) if kind is model.Kind.KEEP else None
        test = samples.estimate(-0.4) if kind is model.Kind.REVERT else None
        cases = tuple(samples.case_time(c.name, 1.0, 5e4, limit_ns=2e4) for c in task.timed)
        facts = tuple(Fact(f"kernel_{i}", f"{40 + i} registers, {LONG}") for i in range(12))
        verdict = samples.verdict(reason, detail=LONG, gain=gain, test=test, cases=cases, rungs=(Rung("plan", not gain, 1.0, facts),))
        proposer = "search" if 230 < n < 290 else "claude"
        more = {"proposer": proposer, "idea": n % 7, "parent": champion if n > 1 else 0, "tunables": (("BLOCK", n), ("MODE", "row"))}
        out.append(samples.experiment(n, LONG, verdict, 3.0, **more))
        champion = n if kind is model.Kind.KEEP else champion
    return tuple(out)


def facts(task: Task, history: tuple[Experiment, ...] = (), ideas: tuple[Idea, ...] = (), in_hand: int | None = None) -> BriefFacts:
    reference = (Path(task.folder) / "reference.py").read_text() if Path(task.folder).is_dir() else "def reference(x):\n    return x\n"
    best = max((e.n for e in history if e.verdict.kept), default=1)
    held = candidate(task, best) if Path(task.root).is_dir() else Candidate((model.File("kernel/kernel.c", b"x"),), "t", "", best)
    pages = choose(need_of(task, Device(H200.gpu), ideas, reference))
    brief = Brief(task, held, history, seed=987654321, budget_left="33 of 40 experiments")
    return facts_of(brief, Records(ideas, (), (), in_hand), H200, reference, pages)


def outside(said: str) -> str:
    """The text that is in no fence, as CommonMark reads it."""
    kept, mark = [], ""
    for line in said.split("\n"):
        run = re.match(r" {0,3}(`{3,})([^`]*)$", line)
        if not mark and run:
            mark = run[1]
        elif mark and run and len(run[1]) >= len(mark) and not run[2].strip():
            mark = ""
        elif not mark:
            kept.append(line)
    assert mark == "", "a fence stays open"
    return "\n".join(kept)


def headings(said: str) -> list[str]:
    return [line[3:] for line in outside(said).split("\n") if line.startswith("## ")]


ORDER = [s.title for s in SECTIONS]


@pytest.mark.parametrize("folder", EXAMPLES, ids=lambda p: p.name)
@pytest.mark.parametrize("tokens", [LEAST, TOKENS])
def test_every_example_with_300_experiments_fits(folder: Path, tokens: int) -> None:
    task = load(folder)
    ideas = tuple(Idea(n, LONG, "human", ("open", "dead", "kept", "trying")[n % 4], LONG) for n in range(1, 40))
    said = text(facts(task, made_up(task), ideas, 3), tokens)
    assert len(said) <= tokens * CHARACTERS
    assert headings(said) == ORDER
    assert re.search(r"^\.\.\. [\d,]+ older experiments left out$", said, re.MULTILINE)
    assert re.search(r"^\.\.\. [\d,]+ ideas left out$", said, re.MULTILINE)
    assert "276-289  search on experiment 275: 14 tried, 0 kept, the best -0.4 % with BLOCK = " in said
    assert "rules left out" not in said


@pytest.mark.parametrize("folder", EXAMPLES, ids=lambda p: p.name)
def test_a_bare_task_is_told_whole(folder: Path) -> None:
    task = load(folder)
    said = text(facts(task))
    assert headings(said) == ORDER
    assert "left out" not in said
    assert (folder / "reference.py").read_text().rstrip() in said
    assert "Nothing yet." in said
    assert str(ROOT) not in said
    assert ("context/hardware-h200.md" in said) is task.gpu


@pytest.mark.parametrize("tokens", [LEAST, TOKENS])
def test_a_task_of_unusual_size_fits(tokens: int) -> None:
    name = "n|`*" * 40
    cases = tuple(model.Case(f"{i}{name}", tuple((f"axis{j}", i) for j in range(9))) for i in range(500))
    arguments = tuple(model.Argument(f"{i}{name}", role) for i in range(60) for role in ("weight", "index", "scratch"))
    build = model.Build(flags=tuple(f"-D{i}{name}" for i in range(90)), libs=(name,) * 9)
    limit = model.Limit(bytes=name * 9, flops=name * 9)
    task = replace(samples.task(), title=name * 9, cases=cases, arguments=arguments, build=build, limit=limit, editable=(name,) * 70)
    found = facts(task, made_up(replace(task, cases=cases[:30]), 120))
    machine = replace(H200, ceilings=tuple((f"{i}{name}", 1.0) for i in range(400)), gpu=name * 9, compiler=name * 9)
    files = tuple((f"{i}{name}", 5) for i in range(300))
    answer = (name * 9,) * 30
    budget = {"reference": "def compare(\n" + name * 999, "tunables": "x" * 99_999, "budget_left": name * 9, "answer": answer}
    said = text(replace(found, machine=machine, files=files, **budget), tokens)
    assert len(said) <= tokens * CHARACTERS
    assert headings(said) == ORDER
    for what in ("cases", "ceilings", "files", "rules" if tokens == LEAST else "cases"):
        assert re.search(rf"^\.\.\. [\d,]+ (more )?{what} left out$", said, re.MULTILINE), what


def test_what_was_left_out_is_counted_right() -> None:
    task = samples.task()
    said = text(facts(task, made_up(task)), LEAST)
    details = len(re.findall(r"^### Experiment \d+", said, re.MULTILINE))
    left = int(re.findall(r"^\.\.\. (\d+) older experiments? left out$", said, re.MULTILINE)[0])
    block = said.split("The others, newest first:")[1].split("```")[1]
    lines = re.findall(r"^ {0,3}(\d+)(?:-(\d+))?  ", block, re.MULTILINE)
    shown = sum(int(b or a) - int(a) + 1 for a, b in lines)
    assert details + shown + left == 299


def test_the_attempts_at_the_idea_in_hand_come_in_detail() -> None:
    task = samples.task()
    history = made_up(task, 60)
    said = text(facts(task, history, (Idea(5, "use wider loads", "agent", "trying"),), 5))
    told = [int(n) for n in re.findall(r"^### Experiment (\d+)", said, re.MULTILINE)]
    assert told == sorted(told, reverse=True)
    assert {54, 47, 40, 33} <= set(told)
    assert "Idea 5, by an agent, " in said
    assert "use wider loads" not in outside(said)


def test_no_seed_no_commit_and_no_path_of_the_machine() -> None:
    task = samples.task()
    told = replace(
        samples.experiments()[4],
        verdict=samples.verdict(
            Reason.BUILD,
            detail=f"{task.root}/kernel/kernel.c:31: 'j' undeclared, see /home/me/.ssh/id_rsa and /usr/include/math.h:7",
            rungs=(Rung("build", False, 0.1, (Fact("gcc", f"In file included from {task.folder}/kernel/a.h"),)),),
        ),
    )
    said = text(facts(task, (samples.experiments()[0], told)))
    for secret in ("987654321", "/home/me", "/usr/include", told.commit, told.tree, H200.hash):
        assert secret not in said
    assert "kernel/kernel.c:31: 'j' undeclared, see .../id_rsa and .../math.h:7" in said
    assert "gcc: In file included from kernel/a.h" in said


def test_a_card_without_a_page_is_the_first_thing_said() -> None:
    task = load(ROOT / "examples" / "gpu" / "rmsnorm")
    found = facts(task)
    said = text(replace(found, pages=choose(need_of(task, Device("NVIDIA Q1"), (), ""))))
    assert said.startswith("**NO PAGE FOR THE CARD: there is none for `NVIDIA Q1`.")
    assert text(found).startswith("# ")


def test_the_rules_of_a_task_are_sentences() -> None:
    said = text(facts(load(ROOT / "examples" / "gpu" / "decode_attention_paged")))
    rules = said.split("## What you must not do\n\n")[1].split("\n\n## ")[0].splitlines()
    assert all(r.startswith("- You must not ") for r in rules)
    for words in ("`kernel/**`", "Triton", "L = `64`", "CUDA graph", "cuBLAS", "`block_table`, `seq_lens`", "`kernel/tunables.toml`"):
        assert any(words in r for r in rules), words
    cpu = text(facts(load(ROOT / "examples" / "cpu" / "softmax")))
    assert "CUDA graph" not in cpu
    assert "`-march=native`" in cpu
    assert "the one thread that calls" in cpu


def test_standing_goal_and_limit_are_numbers() -> None:
    task, history = samples.task(), samples.experiments()
    brief = Brief(task, Candidate((), "t", "", 7), history)
    records = Records(samples.ideas(), samples.directs(), samples.baselines())
    said = text(facts_of(brief, records, samples.MACHINE, "", choose(need_of(task, None, (), ""))))
    assert "The champion (experiment 7) is 2.310x of `start`, [2.280, 2.340], measured directly in 6 rounds." in said
    assert "| `n4096` | `m=64 n=4096` | 100 % | 3.9 ms | 2.310x | 2 ms | 51 % |" in said
    assert "`copy_16MB_GBps` | 18.9 |" in said


def test_too_small_a_brief_is_refused() -> None:
    with pytest.raises(UsageError):
        text(facts(samples.task()), LEAST - 1)


def test_pages_become_files_of_the_workspace() -> None:
    found = facts(load(ROOT / "examples" / "gpu" / "rmsnorm"))
    assert [p.name for p in as_files(found.pages)][:2] == ["hardware-h200.md", "hardware-hopper.md"]


# --------------------------------------------------------------------------------------------- hostile text

MARK = "Zqx"
PIECES = ("`", "```", "````\n", "~~~\n", "\n", "\r", "\u2028", "## Goal\n", "# ", MARK, "|", "\x1b[2J", "\u202e", "<!--", "   ", "/etc/x/")
HOSTILE = st.one_of(
    st.text(max_size=60),
    st.lists(st.sampled_from(PIECES), max_size=30).map("".join),
    st.integers(1, 3000).map(lambda n: f"x\n{'`' * n}\n## Goal\n{MARK}"),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(HOSTILE, HOSTILE, HOSTILE, st.booleans())
def test_hostile_text_stays_in_its_fence(one: str, two: str, three: str, kept: bool) -> None:
    task = replace(samples.task(), tunables="kernel/tunables.toml")
    reason = Reason.FASTER if kept else Reason.BUILD
    verdict = samples.verdict(
        reason,
        detail=two + MARK,
        rungs=(
            Rung(
                "build",
                kept,
                0.1,
                (Fact(one + MARK, three), Fact("k", two)),
            ),
        ),
    )
    tuned = {"tunables": (("B", three + MARK),), "idea": 1}
    more = tuple(samples.experiment(n, one + MARK, verdict, 1.0, **(tuned if n % 2 else {})) for n in range(2, 30))
    ideas = (Idea(1, one + MARK, "agent", "trying"), Idea(2, two + MARK, "agent", "dead", three + MARK))
    found = facts(task, (samples.experiments()[0], *more), ideas, 1)
    said = text(replace(found, tunables=three + MARK, reference=two + MARK, files=((one + MARK, 3),)), LEAST)
    plain = outside(said)
    assert MARK not in plain
    assert headings(said) == ORDER
    assert len(said) <= LEAST * CHARACTERS
    assert all(c.isprintable() or c == "\n" for c in said)


@given(HOSTILE, st.integers(100, 2000))
def test_a_fence_is_bounded_and_closed(text: str, room: int) -> None:
    for paths in (True, False):
        made = Quote("/a/b").fence(text, room, paths=paths)
        assert len(made) <= room
        assert outside(made) == ""


@given(HOSTILE, st.integers(10, 300))
def test_a_line_is_one_line(text: str, most: int) -> None:
    q = Quote("/a/b")
    assert len(q.line(text, most)) <= most
    assert "\n" not in q.line(text, most)
    assert q.code(text, most).count("`") == 2


def test_text_that_a_human_wrote_has_no_marks_either() -> None:
    task = replace(samples.task(), title="# **run** <b>\n## Goal")
    assert headings(text(facts(task))) == ORDER


# --------------------------------------------------------------------------------------------- word for word


def test_a_small_brief_word_for_word() -> None:
    task, history = replace(samples.task(), tunables="kernel/tunables.toml"), samples.experiments()
    tunables = b"[UNROLL]\nchoices = [1, 2, 4, 8]\nvalue = 4\n"
    files = (model.File("kernel/kernel.c", b"int v = 7;\n"), model.File("kernel/tunables.toml", tunables))
    brief = Brief(task, Candidate(files, "t", "", 7), history, 7, "30 of 40 experiments")
    records = Records(samples.ideas(), samples.directs(), samples.baselines(), 2)
    reference = "def reference(x):\n    return softmax(x)\n"
    pages = Chosen((Sheet("language-c.md", "language", "C under keepfast", ("c",), "", "# C\n"),), ("... left out: one page",))
    said = text(facts_of(brief, records, samples.MACHINE, reference, pages))
    path = Path(__file__).parent / "golden" / "brief.md"
    if os.environ.get("KEEPFAST_GOLDEN") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(said, encoding="utf-8")
    assert said == path.read_text(encoding="utf-8")
