"""`keepfast e2e` from the command line to the ledger: with a fake engine, and with a benchmark that takes no time."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from keepfast.engine import checks, plans, run, rung
from keepfast.engine.base import STOCK, Account, Graphs, Lap, Likeness, Planted, Slot
from keepfast.engine.plans import Kernel, Setting
from keepfast.engine.readers.base import NAMES
from keepfast.errors import MachineError, TaskError
from keepfast.ledger import Ledger
from keepfast.model import Estimate, File, Machine, Run
from keepfast.model.proof import Outcome
from keepfast.report import book as books
from keepfast.report import e2e as report
from keepfast.report.escape import width
from keepfast.task import campaign, example
from keepfast.task.load import load
from tests.cli.conftest import Call, empty, git, keepfast  # noqa: F401  fixtures
from tests.engine.test_command import BENCH

ENGINE = """
[engine]
kind = "transformers"
model = "a-model"
slot = "mlp_activation"
device = "cpu"
contexts = [64, 128]
rounds = 4
"""


class FakeEngine:
    """Measures nothing: every arm takes what its kernels' files say, `factor = 0.8` in a comment."""

    name = "fake"

    def __init__(self, setting: Setting, kernels: tuple[Kernel, ...]) -> None:
        self.setting, self.kernels = setting, kernels

    def account(self, rounds: int) -> Account:
        cells = plans.cells(self.setting.spec)
        alone = {k.task.name: factor(k) for k in self.kernels}
        arms = {STOCK: 1.0} | (alone or {plans.AGAIN: 1.0})
        if len(alone) > 1:
            arms[" + ".join(alone)] = math.prod(alone.values())
        wobble = [0.0004 * ((5 * i) % 7 - 3) for i in range(100)]
        laps = tuple(
            Lap(c.name, arm, r, 0.01 * c.context * f * (1 + wobble[(11 * r + 5 * i + 3 * j) % 100]))
            for r in range(rounds)
            for i, c in enumerate(cells)
            for j, (arm, f) in enumerate(arms.items())
        )
        slots = tuple(Slot(k.slot or "x", k.task.name, (f"kernel of {k.task.name}",), 2) for k in self.kernels)
        ran = {arm: tuple((s.kernels[0], 2) for s in slots if s.task in arm.split(" + ")) or (("stock's", 2),) for arm in arms}
        return Account(
            engine="fake", model=self.setting.spec.model, machine=self.setting.machine, versions=(), settings=(("device", "cpu"),),
            arms=tuple(arms), cells=cells, slots=slots, laps=laps,
            graphs=tuple(Graphs(c.name, arm, None, ran[arm], (("mlp_activation", 0.004 * c.context),)) for c in cells for arm in arms),
            likeness=tuple(Likeness(cells[0].name, arm, STOCK, 0.0, 0.0, 1.0, 64) for arm in arms if arm != STOCK),
            planted=tuple(Planted(s.name, s.task, "zeros", Likeness(cells[0].name, s.task, STOCK, 0.1, 0.1, 0.0, 64)) for s in slots),
        )  # fmt: skip


def factor(kernel: Kernel) -> float:
    text = next(Path(kernel.folder).rglob("kernel.c")).read_text()
    return float(text.split("factor = ")[1].split()[0]) if "factor = " in text else 1.0


@pytest.fixture
def task(empty: Path) -> Path:  # noqa: F811
    """The example task with an [engine], in a repository."""
    return made(empty, "softmax", "factor = 0.8")


def made(root: Path, name: str, words: str) -> Path:
    top = root / "tasks" / name
    for path, text in example.FILES:
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).write_text(text, encoding="utf-8")
    (top / "kernel" / "kernel.c").write_text(f"/* {words} */\n" + (top / "kernel" / "kernel.c").read_text())
    (top / "task.toml").write_text((top / "task.toml").read_text() + ENGINE)
    git(root, "add", "-A")
    git(root, "commit", "-qm", name)
    return top


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake engine wherever a command would make a real one of the library."""

    def make(setting: Setting, kernels: tuple[Kernel, ...]) -> object:
        return FakeEngine(setting, kernels) if setting.spec.kind == "transformers" else plans.engine(setting, kernels)

    for story in (run.start, run.noise, run.several):
        monkeypatch.setattr(story, "__defaults__", (make,))


def speed(out: str) -> float:
    """Of all cells, as printed."""
    return float(next(row for row in out.splitlines() if row.startswith("all cells")).split()[2].removesuffix("x"))


# ------------------------------------------------------------------------------------------------ one task


def test_the_working_tree_passes(task: Path, keepfast: Call) -> None:  # noqa: F811
    said = keepfast("e2e", "softmax")
    assert said.code == 0, said.out + said.err
    assert said.out.startswith("e2e      passed: faster in the engine, and slower in no cell\n")
    assert speed(said.out) == pytest.approx(1.25, rel=0.005)
    assert "engine on a CPU" in said.out
    assert "the working tree of softmax in transformers, 2 cells, 4 rounds" in said.err
    assert all(width(row) <= 100 for row in said.out.splitlines())


@pytest.mark.parametrize(("words", "code", "outcome"), [("factor = 1.0", 6, "micro-win only"), ("factor = 1.1", 3, "refused")])
def test_the_exit_code_is_the_outcome(task: Path, keepfast: Call, words: str, code: int, outcome: str) -> None:  # noqa: F811
    kernel = task / "kernel" / "kernel.c"
    kernel.write_text(kernel.read_text().replace("factor = 0.8", words))
    said = keepfast("e2e", "softmax", "--json")
    assert said.code == code, said.err
    proof = json.loads(said.out)
    assert proof["schema"] == "keepfast.proof/1"
    assert proof["outcome"] == outcome
    assert said.err == ""


def with_run(root: Path, task: Path) -> Run:
    """A run of the task whose champion is its third experiment, made by hand."""
    from keepfast.model import Direct
    from tests.report import samples

    loaded, base = load(task), git(root, "rev-parse", "HEAD")
    kernel = task / "kernel" / "kernel.c"
    kernel.write_text(kernel.read_text().replace("factor = 0.8", "factor = 0.5"))
    git(root, "commit", "-qam", "kept")
    kept = git(root, "rev-parse", "HEAD")
    git(root, "reset", "-q", "--hard", base)
    start = Run("softmax-1", loaded.name, loaded.hash, loaded.folder, "keepfast/softmax-1", base, base, 1, 1.0, Machine("a", 1, "", "", ""))
    with Ledger.open(root / ".keepfast") as ledger:
        ledger.start(start)
        first, second = samples.experiments()[0], next(e for e in samples.experiments() if e.n > 1 and e.verdict.kept)
        ledger.append(start.id, replace(first, n=1, commit=base))
        ledger.append(start.id, replace(second, n=2, commit=kept))
        gain = Estimate(math.log(0.5), math.log(0.49), math.log(0.51), 0.01, 6, "start")
        ledger.add_direct(start.id, Direct(2, "start", gain, (), False, 1.0))
    return start


def test_the_champion_of_the_last_run_is_proven_and_written_down(empty: Path, task: Path, keepfast: Call) -> None:  # noqa: F811
    run_ = with_run(empty, task)
    said = keepfast("e2e", "softmax")
    assert said.code == 0, said.out + said.err
    assert "experiment 2 of run softmax-1" in said.err
    assert speed(said.out) == pytest.approx(2.0, rel=0.005)
    with Ledger.open(empty / ".keepfast", readonly=True) as ledger:
        found = books.proofs(ledger, ledger.notes(run_.id))
    assert [n for n, _ in found] == [2]
    proof = found[0][1]
    assert proof.cells[0].predicted is not None, "from the direct measurement of the champion"
    assert proof.cells[0].predicted.share == pytest.approx(0.4, rel=0.01)
    assert report.survived(found) == "1 of 1 micro keep tried in an engine survived"
    assert "weakest link: measured on a CPU" in report.newest(found)
    assert speed(keepfast("e2e", "softmax", "--working-tree").out) == pytest.approx(1.25, rel=0.005)
    with Ledger.open(empty / ".keepfast") as ledger:
        assert ledger.gc().artifacts == 0
        assert books.proofs(ledger, ledger.notes(run_.id)) == found, "the tree's own proof belongs to no run"


def test_a_newer_proof_of_the_same_keep_replaces_the_older(empty: Path, task: Path) -> None:  # noqa: F811
    run_ = with_run(empty, task)
    with Ledger.open(empty / ".keepfast") as ledger:
        setting = Setting(load(task).engine, task, {}, "m", Random(1))  # type: ignore[arg-type]
        for words in ("factor = 1.1", "factor = 1.0"):
            files = (File("kernel/kernel.c", f"/* {words} */".encode()),)
            rung.write_down(ledger, run_.id, 2, rung.proven(load(task), files, None, setting, rung.Ways(FakeEngine)))
        found = books.proofs(ledger, ledger.notes(run_.id))
    assert [(n, p.outcome) for n, p in found] == [(2, Outcome.MICRO)]
    assert report.survived(found) == "0 of 1 micro keep tried in an engine survived; 1 is a micro-win only, not shipped"


def test_stock_against_stock(task: Path, keepfast: Call) -> None:  # noqa: F811
    said = keepfast("e2e", "softmax", "--aa", "--json")
    assert said.code == 0, said.err
    noise = json.loads(said.out)
    assert noise["schema"] == "keepfast.e2e-noise/1"
    assert noise["rounds"] == 4
    assert 0 < noise["sd"] < 0.003
    assert "look     stock against stock was not measured" not in keepfast("e2e", "softmax").out
    assert "all cells" in keepfast("e2e", "softmax", "--aa").out


def test_a_proof_knows_the_noise_of_its_setting_only(empty: Path, task: Path, keepfast: Call) -> None:  # noqa: F811
    before = json.loads(keepfast("e2e", "softmax", "--json").out)
    assert "stock against stock was not measured at decode 64 x 1, decode 128 x 1" in before["flags"][-1]
    assert keepfast("e2e", "softmax", "--aa").code == 0
    after = json.loads(keepfast("e2e", "softmax", "--json").out)
    assert not any("stock against stock" in flag for flag in after["flags"])
    for one, other in zip(before["cells"], after["cells"], strict=True):
        assert other["estimate"]["high"] - other["estimate"]["low"] >= one["estimate"]["high"] - one["estimate"]["low"]
    (task / "task.toml").write_text((task / "task.toml").read_text().replace('model = "a-model"', 'model = "another"'))
    assert "stock against stock was not measured" in json.loads(keepfast("e2e", "softmax", "--json").out)["flags"][-1]
    with Ledger.open(empty / ".keepfast") as ledger:
        assert ledger.gc().artifacts == 0, "what was measured is named by its event"


def test_without_an_engine_it_says_how_to_write_one(task: Path, keepfast: Call) -> None:  # noqa: F811
    (task / "task.toml").write_text((task / "task.toml").read_text().replace(ENGINE, ""))
    said = keepfast("e2e", "softmax")
    assert said.code == 2
    assert "has no [engine]" in said.err
    assert "slot =" in said.err


def test_an_engine_that_cannot_run_is_void(task: Path, keepfast: Call, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    def none(setting: Setting, kernels: tuple[Kernel, ...]) -> object:
        raise MachineError("no torch here", next_step="pip install torch")

    monkeypatch.setattr(run.start, "__defaults__", (none,))
    assert keepfast("e2e", "softmax").code == 5


def test_a_command_from_end_to_end(task: Path, keepfast: Call) -> None:  # noqa: F811
    words = f"""
[engine]
kind = "command"
device = "cpu"
contexts = [64, 128]
rounds = 3
memory = 1.0
unshown = ["outputs"]
argv = ["{sys.executable}", "{BENCH}", "0.01", "{{context}}", "{{batch}}"]
patched_env = {{ FACTOR = "0.8", KERNEL = "{{kernel}}" }}
engaged = "kernel engaged"
"""
    (task / "task.toml").write_text((task / "task.toml").read_text().replace(ENGINE, words))
    said = keepfast("e2e", "softmax")
    assert said.code == 0, said.out + said.err
    assert speed(said.out) == pytest.approx(1.25, rel=0.005)
    assert "only the kernel's own check stands for them" in " ".join(said.out.split())


# ------------------------------------------------------------------------------------------------ several


CAMPAIGN = """
[engine]
model = "a-model"
device = "cpu"
contexts = [64, 128]
rounds = 4
[[task]]
folder = "tasks/softmax"
slot = "mlp_activation"
[[task]]
folder = "tasks/norm"
slot = "rms_norm"
"""


def test_a_campaign(empty: Path, task: Path, keepfast: Call) -> None:  # noqa: F811
    made(empty, "norm", "factor = 0.9")
    (empty / "campaign.toml").write_text(CAMPAIGN)
    said = keepfast("e2e", "--campaign", "campaign.toml")
    assert said.code == 0, said.out + said.err
    assert "softmax + norm" in said.out
    assert "no interaction is shown" in said.out
    assert "slowest link: norm adds +11." in " ".join(said.out.split())
    found = json.loads(keepfast("e2e", "--campaign", "campaign.toml", "--json").out)
    assert found["schema"] == "keepfast.together/1"
    assert [p["arm"] for p in found["proofs"]] == ["softmax", "norm", "softmax + norm"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('slot = "rms_norm"', 'slot = "rms_nrom"', "Did you mean `rms_norm`"),
        ('[[task]]\nfolder = "tasks/norm"\nslot = "rms_norm"\n', "", "from 2 to 8"),
        ("rounds = 4", "round = 4", "Did you mean `rounds`"),
        ('"tasks/norm"', '"tasks/softmax"', "named twice"),
        ("[engine]", "[engine", "cannot be read as TOML"),
    ],
)
def test_a_campaign_that_is_none(empty: Path, keepfast: Call, old: str, new: str, said: str) -> None:  # noqa: F811
    assert old in CAMPAIGN
    (empty / "campaign.toml").write_text(CAMPAIGN.replace(old, new))
    found = keepfast("e2e", "--campaign", "campaign.toml")
    assert found.code == 2
    assert said in found.err


# ------------------------------------------------------------------------------------------------ [engine] of task.toml


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('slot = "mlp_activation"', 'slot = "mlp_activaton"', "Did you mean `mlp_activation`"),
        ('slot = "mlp_activation"\n', "", "needs `slot`"),
        ('model = "a-model"\n', "", "needs `model`"),
        ('kind = "transformers"', 'kind = "transformer"', "Did you mean `transformers`"),
        ("rounds = 4", "rounds = 2", "fewer give no interval"),
        ("rounds = 4", 'unshown = ["graph"]', "Did you mean `graphs`"),
        ("rounds = 4", 'every = "keeps"', "Did you mean `keep`"),
        ("rounds = 4", "worst_cell = 1.5", "is a share of time"),
        ("rounds = 4", 'attention = "spda"', "Did you mean `sdpa`"),
        ("rounds = 4", 'compile = "max_autotune"', "Did you mean `max-autotune`"),
        ("rounds = 4", 'weights = "random"', '"sensitive", "library"'),
        ("rounds = 4", "steps = 0", "must be from 1 to 10000"),
        ("rounds = 4", "tokens = 0", "must be from 1 to 4096"),
        ("rounds = 4", 'opponents = ["sdpa_gqa max-autotun"]', "Did you mean `sdpa_gqa max-autotune`"),
        ("rounds = 4", 'opponents = ["eager", "eager"]', "names one twice"),
        ("rounds = 4", "rows = 8", "is of the slot `linear`"),
        ("rounds = 4", "wurst_cell = 1.5", "Did you mean `worst_cell`"),
        ("contexts = [64, 128]", "cells = [[0, 1]]", "whole numbers above 0"),
        ('kind = "transformers"', 'kind = "command"', "needs `argv`"),
        ('kind = "transformers"', 'kind = "command"\nargv = ["x"]', "both arms would be the same"),
        ('kind = "transformers"', 'kind = "command"\nargv = ["x"]\npatched_args = ["y"]', "gives no logits"),
    ],
)
def test_a_wrong_engine_is_refused_with_its_line(task: Path, old: str, new: str, said: str) -> None:
    text = (task / "task.toml").read_text()
    (task / "task.toml").write_text(text.replace(ENGINE, ENGINE.replace(old, new)))
    with pytest.raises(TaskError) as refused:
        load(task)
    assert said in refused.value.text()
    assert refused.value.where.startswith("task.toml:")


def test_flags_that_turn_graphs_off_are_refused_in_task_toml(task: Path) -> None:
    words = '\n[engine]\nkind = "command"\nargv = ["vllm", "--enforce-eager"]\npatched_args = ["x"]\nunshown = ["outputs"]\n'
    (task / "task.toml").write_text((task / "task.toml").read_text().replace(ENGINE, words))
    with pytest.raises(TaskError, match="turns CUDA graphs off: --enforce-eager"):
        load(task)


def test_the_engine_is_no_part_of_what_a_task_is(task: Path) -> None:
    before = load(task)
    (task / "task.toml").write_text((task / "task.toml").read_text().replace("rounds = 4", "rounds = 5\nevery = 3"))
    after = load(task)
    assert after.hash == before.hash
    assert after.engine is not None
    assert (after.engine.rounds, after.engine.cells) == (5, (("decode", 64, 1), ("decode", 128, 1)))


def test_what_the_table_says_of_the_library_reaches_the_engine(task: Path, tmp_path: Path) -> None:
    keys = """
attention = "eager"
compile = "default"
steps = 5
tokens = 7
float32 = false
weights = "library"
opponents = ["sdpa_gqa max-autotune", "flex_attention"]
"""
    (task / "task.toml").write_text((task / "task.toml").read_text() + keys)
    loaded = load(task)
    assert loaded.engine is not None
    setting = Setting(loaded.engine, task, {}, "m", Random(1))
    (tmp_path / "k.py").write_text("")
    kernel = Kernel(replace(loaded, entry_path="k.py", tunables=""), str(tmp_path), "mlp_activation")
    plan = plans.engine(setting, (kernel,)).plan  # type: ignore[attr-defined]
    assert (plan.attention, plan.compile, plan.steps, plan.tokens, plan.float32, plan.weights) == (
        "eager",
        "default",
        5,
        7,
        False,
        "library",
    )
    arms = [(a.name, a.attention, a.compile, bool(a.fills)) for a in plan.arms]
    assert arms == [
        (STOCK, "", None, False),
        ("softmax", "", None, True),
        ("sdpa_gqa max-autotune", "sdpa_gqa", "max-autotune", False),
        ("flex_attention", "flex_attention", None, False),
    ]
    assert plan.skip, "an opponent that cannot run is left out"
    assert rung.bounds(loaded.engine).opponents == loaded.engine.opponents
    assert [a.name for a in plans.engine(setting, ()).plan.arms] == [STOCK, plans.AGAIN]  # type: ignore[attr-defined]


def test_when_a_rung_is_due(task: Path) -> None:
    loaded = load(task)
    assert loaded.engine is not None
    every = [[n for n in range(7) if rung.due(replace(loaded, engine=replace(loaded.engine, every=e)), n)] for e in (0, 1, 3)]
    assert every == [[], [1, 2, 3, 4, 5, 6], [3, 6]]
    assert not rung.due(replace(loaded, engine=None), 1)


def test_kept_files_are_laid_out_with_what_they_read(task: Path, tmp_path: Path) -> None:
    loaded = load(task)
    files = tuple(File(p, (task / p).read_bytes()) for p in ("kernel/kernel.c", "kernel/tunables.toml"))
    place = plans.lay(loaded, files, tmp_path / "new")
    assert (place / "kernel" / "kernel.c").read_bytes() == files[0].data
    assert "=" in (place / "keepfast_tunables.py").read_text()
    with pytest.raises(TaskError, match="cannot be laid out"):
        plans.lay(loaded, (File("../outside.c", b""),), tmp_path / "other")


# ------------------------------------------------------------------------------------------------ the document

DOC = Path(__file__).parents[2] / "docs" / "e2e.md"


def blocks(kind: str) -> list[str]:
    return [part.split("```")[0] for part in DOC.read_text(encoding="utf-8").split(f"```toml {kind}\n")[1:]]


@pytest.mark.parametrize("number", range(3))
def test_an_engine_of_the_document_is_read(task: Path, number: int) -> None:
    (task / "task.toml").write_text((task / "task.toml").read_text().replace(ENGINE, "\n" + blocks("engine")[number]))
    engine = load(task).engine
    assert engine is not None
    assert bool(engine.argv) == (engine.kind == "command")


def test_the_campaign_of_the_document_is_read(tmp_path: Path) -> None:
    (tmp_path / "campaign.toml").write_text(blocks("campaign")[0])
    found = campaign.read(tmp_path / "campaign.toml")
    assert [part.slot for part in found.parts] == ["attention_decode", "add_rms_norm"]


def test_the_document_names_every_reader_and_constant() -> None:
    text = DOC.read_text(encoding="utf-8")
    assert [name for name in NAMES if f"| `{name}` |" not in text] == []
    assert f"at most {checks.KL_FACTOR:.0f} times" in text
    assert (checks.GRAPHS_LEAST, checks.GRAPHS_APART, checks.KL_FACTOR, checks.KL_WORST_FACTOR) == (0.95, 0.02, 3.0, 5.0)
    assert (checks.KL_FLOOR, checks.KL_WORST_FLOOR, checks.TOP1_ALPHA) == (1e-5, 1e-3, 0.01)
