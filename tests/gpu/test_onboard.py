"""Onboarded tasks on a card: the lint passes, the start is kept, every baseline gives right answers, and those of some are measured.

The files are those of tests/task/foreign, which have the shapes of public repositories and KernelBench problems.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from keepfast import shop
from keepfast.judge.endings import Failure
from keepfast.judge.gpu.judge import GpuJudge
from keepfast.materialise import tree_hash
from keepfast.model import Candidate, File
from keepfast.task.onboard_kernelbench import KernelBenchOrigin
from keepfast.task.onboard_op import OpOrigin
from keepfast.task.onboard_python import PythonOrigin
from keepfast.task.onboard_torch import init
from keepfast.task.paths import expand

FOREIGN = Path(__file__).parents[1] / "task" / "foreign"
BY_HAND = 'if __name__ == "__main__":\n    '  # what a file that runs at import needs
ORIGINS: dict[str, Any] = {
    "glu": PythonOrigin("src/glus/ops/glu.py:GluFunction", ("m=4096 n=4096",), odd=("m=3 n=33",)),
    "unit": PythonOrigin("flat/layers/unit.py:unit_forward", ("m=65536 n=128",), odd=("m=7 n=33",)),
    "gate": PythonOrigin("gates/kernels/gate.py:gate_kernel", ("b=4 l=1024 n=4096",), odd=("b=3 l=5 n=33",), bare=True),
    "rows": PythonOrigin("tutorials/02-rows.py:rows", ("m=4096 n=4096",), odd=("m=7 n=33",), arguments=("x=f32[m,n]",)),
    "norm": PythonOrigin(
        "norm.py:add_rms_norm",
        ("m=4096 n=4096",),
        odd=("m=7 n=33",),
        arguments=("x=bf16[m,n]!", "residual=bf16[m,n]!", "weight=bf16[n]"),
        reference="norm.py:plain",
    ),
    "op": OpOrigin("torch.ops.aten.rms_norm", ("m=4096 n=4096",), odd=("m=7 n=33",), arguments=("normalized_shape=[n]", "weight=bf16[n]")),
    "linear": KernelBenchOrigin("kernelbench/12_Linear_Norm_Swish.py", cases=("batch_size=16384",)),
    "linear_new": KernelBenchOrigin("kernelbench/12_Linear_Norm_Swish.py", "kernelbench/12_new.py", cases=("batch_size=16384",)),
    "loss": KernelBenchOrigin("kernelbench/36_Loss.py", cases=("rows=16384 columns=4096",)),
}
MEASURED = ("glu",)


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with the foreign files, and the working folder in it."""
    made = tmp_path / "repo"
    shutil.copytree(FOREIGN, made, ignore=shutil.ignore_patterns("__pycache__"))
    rows = made / "tutorials/02-rows.py"
    rows.write_text(
        rows.read_text().replace("torch.manual_seed(0)\n", BY_HAND + "torch.manual_seed(0)\n    ").replace("\nassert", "\n    assert")
    )
    monkeypatch.chdir(made)
    subprocess.run(["git", "init", "-q"], check=True)
    return made


def onboarded(name: str) -> Path:
    """The task's folder, committed."""
    folder = Path("tasks") / name
    init(folder, ORIGINS[name])
    for argv in (("add", "-A"), ("-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "start")):
        subprocess.run(["git", *argv], check=True)
    return folder


@contextmanager
def judged(folder: Path) -> Iterator[tuple[GpuJudge, Candidate]]:
    """The task's judge, and its start, which passed; nothing is timed yet."""
    with ExitStack() as stack:
        ready = shop.open_shop(folder)
        assert ready.station is not None
        stack.callback(ready.station.close)
        judge = stack.enter_context(shop.judge(ready, lambda event: None, lambda key: None))
        assert isinstance(judge, GpuJudge)
        root = Path(ready.task.root)
        files = tuple(File(path, (root / path).read_bytes()) for path in expand(root, ready.task.editable))
        start = Candidate(files, tree_hash(files), "", 1)
        verdict = judge.ready(start, None)
        assert verdict.kept, f"{verdict.reason}: {verdict.detail}"
        yield judge, start


@pytest.mark.parametrize("name", list(ORIGINS))
def test_from_init_to_the_first_verdict(repo: Path, name: str) -> None:
    with judged(onboarded(name)) as (judge, _):
        assert judge.lint().score
        wrong = {b.name: said for b in judge.task.baselines if (said := refused(judge, b.name))}
    assert wrong == {}


def refused(judge: GpuJudge, baseline: str) -> str:
    """Why a baseline is none, or ""."""
    artifact = judge._artifact(judge.arms.baseline(baseline))
    found = artifact if isinstance(artifact, Failure) else judge.checker.check(artifact.takes[0], judge._stages(), judge.shelf.stock)
    return f"{found.reason}: {found.detail}" if isinstance(found, Failure) else ""


@pytest.mark.alone
@pytest.mark.parametrize("name", MEASURED)
def test_its_baselines_are_measured(repo: Path, name: str) -> None:
    with judged(onboarded(name)) as (judge, start):
        results = [judge._baseline(b.name, start) for b in judge.task.baselines]
    assert [(r.name, r.detail) for r in results if not r.ok] == []


@pytest.mark.alone
def test_check_says_that_the_start_is_kept(repo: Path) -> None:
    """As a user has it, in a process of its own."""
    folder = onboarded("norm")
    env = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-m", "keepfast", "check", str(folder)], capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "keep: start" in done.stdout
