"""`keepfast brief` and `keepfast context`: before a run, from the newest run, and without a task."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from keepfast.ledger import Ledger
from keepfast.model import Machine
from keepfast.task.load import load
from tests.cli.conftest import Call, git
from tests.report import samples

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def repo(empty: Path) -> Path:
    """A repository with a task of the CPU and one of a GPU, and no run."""
    for kind, name in (("cpu", "softmax"), ("gpu", "rmsnorm")):
        shutil.copytree(EXAMPLES / kind / name, empty / "tasks" / name)
    git(empty, "add", "-A")
    git(empty, "commit", "-qm", "tasks")
    return empty


def run(repo: Path, name: str, machine: Machine) -> None:
    """A run of `name` in the ledger: the start, and one change that lost. Its champion is HEAD."""
    head, task = git(repo, "rev-parse", "HEAD"), load(repo / "tasks" / name)
    start, *_, lost = (samples.experiments()[i] for i in (0, 2))
    more = {"id": f"{name}-1", "task": name, "task_hash": task.hash, "task_folder": f"tasks/{name}", "base": head, "machine": machine}
    begun = replace(samples.run(), settings=(("goal", "3.5"), ("over", "start"), ("experiments", "40")), **more)  # type: ignore[arg-type]
    with Ledger.open(repo / ".keepfast") as ledger:
        ledger.start(begun)
        ledger.append(begun.id, replace(start, commit=head))
        ledger.append(begun.id, replace(lost, n=2, commit=head, parent=1))
        ledger.add_idea(name, "keep the row in registers")


def test_a_bare_task(keepfast: Call, repo: Path) -> None:
    said = keepfast("brief", "tasks/softmax")
    assert said.code == 0, said.err
    assert said.out.startswith("# row softmax, float32\n")
    assert "Nothing yet." in said.out
    assert str(repo) not in said.out
    assert not (repo / ".keepfast").exists()


def test_the_newest_run_is_told_without_naming_a_task(keepfast: Call, repo: Path) -> None:
    run(repo, "softmax", samples.MACHINE)
    said = keepfast("brief")
    assert said.code == 0, said.err
    for words in (
        "at least 3.5x",
        "rename and reorder",
        "38 of 40 experiments",
        "keep the row in registers",
        "| `copy_16MB_GBps` | 18.9 |",
    ):
        assert words in said.out


def test_another_task_hash_is_another_task(keepfast: Call, repo: Path) -> None:
    run(repo, "softmax", samples.MACHINE)
    path = repo / "tasks/softmax/reference.py"
    path.write_text(path.read_text() + "\n# changed\n")
    assert "Nothing yet." in keepfast("brief", "tasks/softmax").out


def test_the_brief_as_an_object(keepfast: Call, repo: Path) -> None:
    run(repo, "rmsnorm", replace(samples.MACHINE, gpu="NVIDIA H200"))
    said = json.loads(keepfast("brief", "rmsnorm", "--tokens", "9000", "--json").out)
    assert (said["schema"], said["task"], said["run"], said["most"]) == ("keepfast.brief/1", "rmsnorm", "rmsnorm-1", 9000)
    assert said["tokens"] <= 9000
    assert said["pages"][:2] == ["hardware-h200.md", "hardware-hopper.md"]
    assert said["warning"] == ""
    assert said["text"] == keepfast("brief", "rmsnorm", "--tokens", "9000").out


def test_without_a_task_the_brief_says_what_to_type(keepfast: Call, empty: Path) -> None:
    said = keepfast("brief")
    assert said.code == 2
    assert "no task at" in said.err


def test_pages_of_a_task_follow_the_card_of_its_run(keepfast: Call, repo: Path) -> None:
    run(repo, "rmsnorm", replace(samples.MACHINE, gpu="NVIDIA B200"))
    said = keepfast("context", "rmsnorm", "--json")
    assert [p["name"] for p in json.loads(said.out)["pages"]][:2] == ["hardware-b200.md", "hardware-blackwell-datacenter.md"]
    other = keepfast("context", "rmsnorm", "--device", "RTX 4090")
    assert other.out.startswith("# NVIDIA GeForce RTX 4090")


def test_pages_by_card_and_model_alone(keepfast: Call, empty: Path) -> None:
    said = keepfast("context", "--device", "H200", "--model", "deepseek-v4", "--json")
    found = json.loads(said.out)
    assert (found["schema"], found["device"]) == ("keepfast.context/1", "H200")
    assert found["tokens"] <= 12_000
    assert [p["name"] for p in found["pages"]] == ["hardware-h200.md", "hardware-hopper.md", "model-deepseek-v4-attention.md"]
    assert keepfast("context", "--device", "GTX 9").out.startswith("NO PAGE FOR THE CARD")
    assert "NO PAGE" not in keepfast("context", "--model", "deepseek-v4").out


def test_the_cut_is_shown(keepfast: Call, empty: Path) -> None:
    assert "more lines of this page left out" in keepfast("context", "--device", "H200", "--tokens", "700").out


def test_all_pages_are_listed(keepfast: Call, empty: Path) -> None:
    said = keepfast("context", "--list", "--device", "H200")
    assert said.code == 0
    assert "* hardware-h200.md " in said.out
    assert "  hardware-ada.md " in said.out
    assert json.loads(keepfast("context", "--list", "--json").out)["pages"][0]["text"] == ""


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("context",), "no task here, and no card or model named"),
        (("context", "--model", "deepsek-v4"), "Did you mean `deepseek-v4`?"),
        (("context", "nowhere", "--device", "H200"), "no task at `nowhere`"),
        (("context", "--device", "H200", "--tokens", "3"), "no page fits 3 tokens"),
    ],
)
def test_what_cannot_be_is_one_message(keepfast: Call, empty: Path, words: tuple[str, ...], why: str) -> None:
    said = keepfast(*words)
    assert said.code == 2
    assert why in said.err


def test_a_brief_changes_nothing(keepfast: Call, repo: Path) -> None:
    run(repo, "softmax", samples.MACHINE)
    before = (git(repo, "status", "--porcelain"), (repo / ".keepfast/ledger.db").read_bytes())
    assert keepfast("brief").code == 0
    assert before == (git(repo, "status", "--porcelain"), (repo / ".keepfast/ledger.db").read_bytes())
