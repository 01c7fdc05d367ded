"""Tasks for a GPU: what they may say, what they have when they say nothing, and what is refused in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from keepfast import dtypes
from keepfast.errors import TaskError
from keepfast.model import Baseline, Build, Rules, Task
from keepfast.task.checks import refuse_unfit
from keepfast.task.load import load
from keepfast.task.rules import prepare_is

TOML = """schema = 1
signature = "norm(Tensor x, Tensor weight, Tensor table, Tensor(a!) work, int rows, float eps=1e-6) -> Tensor"
languages = ["triton"]
entry = "kernel/kernel.py:kernel"
axes = ["m", "n"]

[[case]]
m = 16
n = 4096
"""
REFERENCE = "import torch\n\n\ndef inputs(case, rng):\n    return {}\n\n\ndef reference(x, weight, table, work, rows, eps):\n    return x\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "kernel").mkdir()
    (tmp_path / "kernel" / "kernel.py").write_text("def kernel(x, weight, table, work, rows, eps):\n    return x\n")
    (tmp_path / "kernel" / "kernel.cu").write_text('extern "C" int kernel(const float *x) { return 0; }\n')
    (tmp_path / "reference.py").write_text(REFERENCE)
    return tmp_path


def task(folder: Path, more: str = "", old: str = "", new: str = "") -> Task:
    text = TOML.replace(old, new) if old else TOML
    assert not old or text != TOML
    (folder / "task.toml").write_text(text + more)
    return load(folder)


def accepted(found: Task) -> Task:
    refuse_unfit(found)
    return found


def refused(found: Task) -> str:
    with pytest.raises(TaskError) as caught:
        refuse_unfit(found)
    assert caught.value.where == "task.toml"
    assert caught.value.next_step
    return caught.value.what


def test_what_a_gpu_task_has_when_it_says_nothing(folder: Path) -> None:
    found = accepted(task(folder))
    assert found.gpu
    assert found.rules == Rules("required", "allowed")
    assert found.build == Build(("-O3",))
    assert found.editable == ("kernel/**",)


def test_what_it_says_counts(folder: Path) -> None:
    more = '[rules]\ncuda_graphs = "allowed"\nlibrary_kernels = "forbidden"\n[build]\nflags = ["-O2", "-use_fast_math"]\n'
    found = accepted(task(folder, more))
    assert found.rules == Rules("allowed", "forbidden")
    assert found.build.flags == ("-O2", "-use_fast_math")


@pytest.mark.parametrize("language", ["triton", "cute", "torch", "cuda"])
def test_the_languages(folder: Path, language: str) -> None:
    entry = "kernel/kernel.cu:kernel" if language == "cuda" else "kernel/kernel.py:kernel"
    (folder / "task.toml").write_text(TOML.replace('["triton"]', f'["{language}"]').replace("kernel/kernel.py:kernel", entry))
    assert accepted(load(folder)).languages == (language,)


def test_several_languages_of_a_gpu(folder: Path) -> None:
    assert accepted(task(folder, old='["triton"]', new='["triton", "cuda", "torch"]')).gpu


def test_languages_of_both_kinds(folder: Path) -> None:
    found = task(folder, old='["triton"]', new='["triton", "c"]')
    assert refused(found) == "`c` is judged on a CPU and `triton` on a GPU: one task has languages of one kind"


def test_every_element_type(folder: Path) -> None:
    for name in dtypes.names():
        assert accepted(task(folder, f'[arguments]\nx = {{ dtype = "{name}" }}\n')).argument("x").dtype == name


def test_every_role(folder: Path) -> None:
    roles = '[arguments]\nweight = { role = "weight" }\ntable = { role = "index" }\nwork = { role = "scratch" }\nrows = { role = "meta" }\n'
    found = accepted(task(folder, roles))
    assert [found.argument(name).role for name in ("x", "weight", "table", "work", "rows")] == [
        "input", "weight", "index", "scratch", "meta",
    ]  # fmt: skip


def test_what_the_host_may_read_is_drawn_apart(folder: Path) -> None:
    roles = '[arguments]\ntable = { role = "meta" }\n'
    with pytest.raises(TaskError, match="`meta` is not defined"):
        task(folder, roles)
    (folder / "reference.py").write_text(REFERENCE + "\n\ndef meta(case, rng):\n    return {}\n")
    assert accepted(task(folder, roles)).argument("table").role == "meta"


@pytest.mark.parametrize("share", ["0.2", ".35", "0.05", "0"])
def test_a_share_of_library_kernels(folder: Path, share: str) -> None:
    assert accepted(task(folder, f'[rules]\nlibrary_kernels = "{share}"\n')).rules.library_kernels == share


def test_graphs_cannot_be_forbidden(folder: Path) -> None:
    assert "captured as CUDA graphs" in refused(task(folder, '[rules]\ncuda_graphs = "forbidden"\n'))


def test_what_a_prepare_beside_the_entry_is(folder: Path) -> None:
    (folder / "kernel" / "kernel.py").write_text("def prepare(weight):\n    return weight\n\n\ndef kernel(x):\n    return x\n")
    assert prepare_is(accepted(task(folder))) == "weights"
    assert prepare_is(accepted(task(folder, old="axes =", new='prepare = "step"\naxes ='))) == "step"
    assert prepare_is(accepted(task(folder, '[rules]\nprepare = "step"\n'))) == "step"
    assert prepare_is(accepted(task(folder, '[rules]\nprepare = "forbidden"\n'))) == ""
    (folder / "kernel" / "kernel.py").write_text("class A:\n    def prepare(self):\n        pass\n")
    accepted(task(folder))
    (folder / "kernel" / "kernel.py").write_text("def kernel(x:\n")  # the build says so
    accepted(task(folder))


def test_prepare_in_cuda(folder: Path) -> None:
    (folder / "kernel" / "kernel.cu").write_text('extern "C" int prepare(const float *w) { return 0; }\n')
    (folder / "task.toml").write_text(TOML.replace('["triton"]', '["cuda"]').replace("kernel/kernel.py:", "kernel/kernel.cu:"))
    assert "`kernel/kernel.cu` has the C ABI, and a `prepare` is called beside an entry in Python only" in refused(load(folder))
    (folder / "kernel" / "kernel.cu").write_text('extern "C" int kernel(const float *w) { return 0; }\n')
    accepted(load(folder))
    (folder / "task.toml").write_text((folder / "task.toml").read_text().replace("axes =", 'prepare = "step"\naxes ='))
    assert "beside an entry in Python only" in refused(load(folder))


def test_baselines_are_torch_and_cuda(folder: Path) -> None:
    (folder / "baselines").mkdir()
    for name in ("eager.py", "mine.cu", "_helper.py", "notes.md"):
        (folder / "baselines" / name).write_text("")
    assert task(folder).baselines == (Baseline("eager", "baselines/eager.py", "torch"), Baseline("mine", "baselines/mine.cu", "cuda"))
    (folder / "baselines" / "old.c").write_text("")
    with pytest.raises(TaskError, match=r"baselines/old.c: a baseline of a GPU task is written in Python or CUDA(.|\n)*NAME.cu"):
        task(folder)


def test_a_frozen_oracle_is_called_by_reference(folder: Path) -> None:
    (folder / "frozen" / "kernel").mkdir(parents=True)
    (folder / "frozen" / "kernel" / "kernel.py").write_text("")
    assert accepted(task(folder, old="axes =", new='oracle = "frozen"\naxes =')).oracle == "frozen"
    (folder / "reference.py").write_text("def inputs(case, rng): ...\n\n\ndef outputs(case): ...\n")
    with pytest.raises(TaskError, match="`reference` is not defined"):
        task(folder, old="axes =", new='oracle = "frozen"\naxes =')


def test_an_entry_of_another_suffix(folder: Path) -> None:
    with pytest.raises(TaskError, match=r"`kernel/kernel.py` is no file of cuda \(.cu\)"):
        task(folder, old='["triton"]', new='["cuda"]')


def test_the_examples_of_this_repository() -> None:
    found = sorted((Path(__file__).parents[2] / "examples" / "gpu").glob("*/task.toml"))
    for path in found:
        accepted(load(path.parent))


def test_the_example_of_the_documents(folder: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "tasks.md").read_text(encoding="utf-8")
    toml, reference = (
        text.split("```toml gpu\n")[1].split("```")[0],
        text.split("### reference.py in torch\n\n```python\n")[1].split("```")[0],
    )
    (folder / "task.toml").write_text(toml)
    (folder / "reference.py").write_text(reference)
    found = accepted(load(folder))
    assert found.argument("weight").role == "weight"
    assert found.rules == Rules("required", "forbidden")
