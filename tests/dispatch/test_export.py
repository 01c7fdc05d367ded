"""What is written: a package that passes its own tests, in a clean folder, without keepfast; and what is refused before a file is made."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from msgspec.structs import replace

from keepfast import shop
from keepfast.dispatch import certify, export, package
from keepfast.dispatch.records import Table
from keepfast.errors import UsageError
from keepfast.ledger import Ledger
from keepfast.model import Event, File, Task
from tests.dispatch import kit
from tests.dispatch.test_certify import begun, repository

LINES = ["gain of the last keep: +10 %"]
TORCH = importlib.util.find_spec("torch") is not None
needs_torch = pytest.mark.skipif(not TORCH, reason="torch is not installed")


def write(task: Task, out: Path, name: str, layout: str = "python", made: Table | None = None) -> Path:
    export.write(kit.source(task, name, made), export.Wanted(out, layout=layout), LINES)
    return out


def python(folder: Path, *argv: str, path: str = "src") -> subprocess.CompletedProcess[str]:
    """This Python in `folder`, with nothing of keepfast on its path."""
    env = os.environ | {"PYTHONPATH": str(folder / path), "XDG_CACHE_HOME": str(folder / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([sys.executable, *argv], cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=300)


# --------------------------------------------------------------------------------------------- packages at work


@needs_torch
@pytest.mark.parametrize(("make", "name"), [(kit.c_softmax, "c_fast"), (kit.torch_norm, "norm_fast")])
def test_a_package_passes_its_own_tests(tmp_path: Path, make: object, name: str) -> None:
    folder = write(make(tmp_path / "task"), tmp_path / "out", name)  # type: ignore[operator]
    done = python(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


@needs_torch
def test_a_package_takes_the_place_of_an_operator(tmp_path: Path) -> None:
    folder = write(kit.op_softmax(tmp_path / "task"), tmp_path / "out", "op_fast")
    done = python(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests", "-k", "operator or region")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "2 passed" in done.stdout


USED = """
import sys, warnings
import torch, c_fast
from c_fast import _router, _stock

assert "keepfast" not in sys.modules
x = torch.randn(16, 256)
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    assert torch.equal(c_fast.softmax(x), _stock.call(x))  # a card of another name: stock
    c_fast.softmax(x)
assert [w.category.__name__ for w in said] == ["RouteWarning"], said
_router._toolchains[-1] = ""
_router.routes.clear()
torch.testing.assert_close(c_fast.softmax(x), torch.softmax(x, 1))
print(c_fast.stats())
"""


@needs_torch
def test_it_installs_into_a_clean_folder(tmp_path: Path) -> None:
    folder = write(kit.c_softmax(tmp_path / "task"), tmp_path / "out", "c_fast")
    if importlib.util.find_spec("setuptools") is None or importlib.util.find_spec("pip") is None:
        pytest.skip("pip and setuptools are not installed")
    argv = (
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "--target",
        str(tmp_path / "site"),
        str(folder),
    )
    done = python(tmp_path, *argv, path="nowhere")
    assert done.returncode == 0, done.stderr
    ran = python(tmp_path, "-W", "error::SyntaxWarning", "-c", USED, path="site")
    assert ran.returncode == 0, ran.stderr
    assert "'custom': 1, 'stock': 2, 'errors': 0" in ran.stdout


# --------------------------------------------------------------------------------------------- what is in it


def test_the_files(tmp_path: Path) -> None:
    folder = write(kit.torch_norm(tmp_path / "task"), tmp_path / "out", "norm_fast")
    module = folder / "src" / "norm_fast"
    assert "from .helper import mean_square" in (module / "_champion/kernel/kernel.py").read_text()
    assert "from .keepfast_tunables import WAYS" in (module / "_champion/kernel/kernel.py").read_text()
    assert "WAYS = 1" in (module / "_champion/kernel/keepfast_tunables.py").read_text()
    for path in folder.rglob("*.py"):
        compile(path.read_text(), str(path), "exec")
        assert "import keepfast\n" not in path.read_text()
        assert "from keepfast" not in path.read_text()
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    assert (project["name"], project["dependencies"]) == ("norm-fast", ["torch>=2.6"])
    assert "entry-points" not in project
    routes = json.loads((module / "routes.json").read_text())
    assert routes["table"]["schema"] == "keepfast.routes/1"
    assert routes["table"]["regions"][0]["spans"][0] == {"axis": "m", "low": 4, "high": 16, "multiple": 4}


def test_the_readme_has_the_evidence_and_the_weak_links(tmp_path: Path) -> None:
    text = (write(kit.torch_norm(tmp_path / "task"), tmp_path / "out", "norm_fast") / "README.md").read_text()
    for wanted in (
        *LINES,
        "custom where m is 4 to 16",
        "everything else goes to plain",
        "no engine",
        "PartialWrite",
        "NORM_FAST_ROUTE=stock",
        "m=32 n=64",
    ):
        assert wanted in text
    assert "{{" not in text


def test_an_operators_package_is_found_by_torch_and_by_vllm(tmp_path: Path) -> None:
    folder = write(kit.op_softmax(tmp_path / "task"), tmp_path / "out", "op_fast")
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    assert project["entry-points"] == {
        "torch.backends": {"op_fast": "op_fast._override:register"}, "vllm.general_plugins": {"op_fast": "op_fast._vllm:register"},
    }  # fmt: skip
    assert "it was not tried in a running vLLM" in (folder / "README.md").read_text()


def test_the_layout_of_a_kernel_repository(tmp_path: Path) -> None:
    folder = write(kit.torch_norm(tmp_path / "task"), tmp_path / "out", "norm_fast", "hf")
    build = tomllib.loads((folder / "build.toml").read_text())
    assert build["general"] == {"name": "norm-fast", "version": 1, "edition": 6, "license": "Apache-2.0", "backends": ["cpu"]}
    assert build["torch-noarch"] == {"pyext": ["json", "py"]}
    assert (folder / "torch-ext/norm_fast/__init__.py").is_file()
    assert not (folder / "torch-ext/norm_fast/_ops.py").exists()  # kernel-builder writes its own
    variant = folder / "build/torch-cpu"
    facts = json.loads((variant / "metadata.json").read_text())
    assert facts["id"] == "_norm_fast_cpu_fffffff"
    assert facts["id"] in (variant / "_ops.py").read_text()
    files = {p.relative_to(variant).as_posix() for p in variant.rglob("*") if p.is_file()} - {"metadata.json"}
    assert set(facts["digest"]["files"]) == files
    for name, digest in facts["digest"]["files"].items():
        assert base64.b64encode(hashlib.sha256((variant / name).read_bytes()).digest()).decode() == digest
    with pytest.raises(UsageError, match="has to be compiled"):
        write(kit.c_softmax(tmp_path / "c"), tmp_path / "c_out", "c_fast", "hf")


LOADED = """
import importlib.util, sys
import torch

spec = importlib.util.spec_from_file_location("_norm_fast_cpu_fffffff", "build/torch-cpu/__init__.py")
module = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = module
spec.loader.exec_module(module)
sys.modules[spec.name + "._router"]._toolchains[-1] = ""
residual, given = torch.randn(8, 64), torch.randn(8, 64)
module.add_norm(residual, given, torch.ones(64))
assert module.stats()["custom"] == 1, module.stats()
assert hasattr(torch.ops._norm_fast_cpu_fffffff, "add_norm")
"""


@needs_torch
def test_a_variant_loads_from_any_path_under_a_name_of_its_own(tmp_path: Path) -> None:
    folder = write(kit.torch_norm(tmp_path / "task"), tmp_path / "out", "norm_fast", "hf")
    done = python(folder, "-c", LOADED, path="nowhere")
    assert done.returncode == 0, done.stderr


# --------------------------------------------------------------------------------------------- what is refused


def test_a_folder_that_is_not_empty(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("")
    with pytest.raises(UsageError, match="is not empty"):
        write(kit.c_softmax(tmp_path / "task"), tmp_path / "out", "c_fast")


def test_names(tmp_path: Path) -> None:
    task = kit.c_softmax(tmp_path)
    assert export._name(task, "") == "softmax_fast"
    assert export._name(replace(task, name="8 bits é"), "") == "k_8_bits_fast"
    for bad in ("with-dash", "class", "keepfast_x", "stream"):
        with pytest.raises(UsageError, match="--name"):
            export._name(task, bad)


def test_what_a_package_cannot_do_is_said(tmp_path: Path) -> None:
    task = kit.c_softmax(tmp_path / "task")
    made = kit.table(task)
    tilted = replace(made, arguments=(replace(made.arguments[0], contiguous=False),))
    with pytest.raises(UsageError, match="`x` is not contiguous"):
        package.module_files(kit.source(task, "c_fast", tilted))
    unread = replace(made, arguments=(replace(made.arguments[0], dims=made.arguments[0].dims[:1]),))
    with pytest.raises(UsageError, match="no argument tells `n`"):
        package.module_files(kit.source(task, "c_fast", unread))
    free = replace(made.outputs[0].dims[1], kind="free")
    loose = replace(made, outputs=(replace(made.outputs[0], dims=(made.outputs[0].dims[0], free)),))
    with pytest.raises(UsageError, match="no size of an argument tells the size of an output"):
        package.module_files(kit.source(task, "c_fast", loose))
    entry = Path(task.root) / task.entry_path
    entry.write_text(entry.read_text() + "\nint prepare(const float *w)\n{\n    return w != 0;\n}\n")
    with pytest.raises(UsageError, match="defines `prepare`, which a package cannot call yet"):
        package.module_files(kit.source(task, "c_fast", made))


def test_an_operator_that_the_task_does_not_call(tmp_path: Path) -> None:
    task = kit.op_softmax(tmp_path)
    found = export._override(task, "torch.ops.aten._softmax")
    assert found is not None
    assert found.op == "aten::_softmax"
    with pytest.raises(UsageError, match="calls aten::_softmax"):
        export._override(task, "aten.softmax")
    with pytest.raises(UsageError, match="does not say how it is called"):
        export._override(kit.c_softmax(tmp_path), "aten._softmax")
    assert export._override(kit.c_softmax(tmp_path), "") is None


@pytest.mark.usefixtures("calm", "walled")
def test_without_a_table_only_uncertified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    task = repository(tmp_path)
    ready = shop.open_shop(Path(task.folder))
    with Ledger.open(ready.repo.ensure_state()) as ledger:
        run = begun(task, ready, ledger)
    with pytest.raises(UsageError, match="champion 1 of run softmax-1 has no complete routing table") as error:
        export.export(Path(task.folder), export.Wanted(tmp_path / "out"))
    assert "keepfast certify softmax" in error.value.next_step
    assert not (tmp_path / "out").exists()
    made = export.export(Path(task.folder), export.Wanted(tmp_path / "out", uncertified=True))
    assert (made.name, made.regions, made.op) == ("softmax_fast", 0, "")
    assert "no region is certified" in (tmp_path / "out" / "README.md").read_text()
    with Ledger.open(ready.repo.state) as ledger:
        table = replace(kit.table(task), tree=ledger.champion(run.id).tree, task_hash=task.hash)  # type: ignore[union-attr]
        certify._store(ledger, run, replace(table, complete=False), "half")
        ledger.add_event(run.id, Event("certify", "nothing yet"))
    with pytest.raises(UsageError, match="no complete routing table"):
        export.export(Path(task.folder), export.Wanted(tmp_path / "out2"))
    with Ledger.open(ready.repo.state) as ledger:
        certify._store(ledger, run, table, "whole")
    assert export.export(Path(task.folder), export.Wanted(tmp_path / "out2", name="mine")).regions == 1


def test_the_kernel_of_the_commit_is_exported_not_that_of_the_working_tree(tmp_path: Path) -> None:
    task = kit.c_softmax(tmp_path / "task")
    source = replace(kit.source(task, "c_fast"), champion=(File("kernel/kernel.c", b"/* kept */"), File("kernel/tunables.toml", b"")))
    assert package.module_files(source)["_champion/kernel/kernel.c"] == b"/* kept */"
