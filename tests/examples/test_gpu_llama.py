"""The Llama-3.1-8B kernels without a GPU: tasks can be judged and fit their slots, starts and decks compile for a Hopper GPU and are
right, or wrong where they are meant to be.

Run as a program (`compile FOLDER...`, or `interpret TASK FOLDER...`, folders with kernels by task) this file does the part that must have a
process of its own: both put something in the place of Triton's driver.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from cardless import poison  # noqa: E402
from msgspec.structs import replace  # noqa: E402
from tests.examples import test_gpu_examples as kit  # noqa: E402

from keepfast.engine import slots  # noqa: E402
from keepfast.model import Case, Task  # noqa: E402
from keepfast.task import campaign, tunables  # noqa: E402
from keepfast.task.load import load  # noqa: E402

FOLDER = Path(__file__).parents[2] / "examples" / "gpu" / "llama"
TASKS = ("attention_decode", "add_rms_norm", "rotary_cache", "mlp_activation", "rms_norm", "linear")
CELLS = (("decode", 1024, 1), ("decode", 8192, 8), ("decode", 32768, 4), ("decode", 131072, 1))
ONE_LAYER = '{"base": "llama-3.1-8b", "layers": 1}'  # its slots are those of 32
LEAST = {  # bytes that a call moves at least, counted by hand
    "attention_decode": lambda a: 2 * 2 * a["tokens"] * 8 * 128 + 2 * 2 * a["b"] * 32 * 128 + 4 * a["b"],
    "add_rms_norm": lambda a: 4 * 2 * a["m"] * a["n"] + 2 * a["n"],
    "rotary_cache": lambda a: 2 * a["b"] * (2 * 32 * 128 + 2 * 2 * 8 * 128 + 2 * 128) + 4 * a["b"],
    "mlp_activation": lambda a: 3 * 2 * a["m"] * a["n"],
    "rms_norm": lambda a: 2 * 2 * a["m"] * a["n"] + 2 * a["n"],
    "linear": lambda a: 2 * (a["n"] * a["k"] + a["m"] * a["k"] + a["m"] * a["n"]),
}
WRONG = {
    "attention_decode/004-whole-steps",
    "add_rms_norm/003-no-epsilon",
    "rms_norm/003-no-epsilon",
    "mlp_activation/002-one-exponential",
    "rotary_cache/002-one-place",
    "linear/002-whole-steps",
    "linear/007-sixteen-rows",
}
UNKNOWN = ("gdc_wait", "gdc_launch_dependents", "ask_for_lines")  # to the interpreter: they order or hasten, and compute nothing
OTHERS = (  # kernels of the libraries in a step of stock or of an opponent
    "void at::native::elementwise_kernel<128, 4, masked_fill_kernel>", "void at::native::reduce_kernel<512, 1, MeanOps>",
    "void at::native::index_copy_kernel_impl", "void at::native::CatArrayBatchedCopy", "triton_red_fused_add_mean_mul_rsqrt_3",
    "fmha_cutlassF_bf16_aligned_64x128_rf_sm80", "flash_fwd_splitkv_combine_kernel", "cudnn_generated_fort_native_sdpa_sm90_flash_fprop",
    "nvjet_tst_64x8_64x16_4x1_v_bz_TNT", "gemv2T_kernel_val", "cublasLt::splitKreduce_kernel", "triton_flex_decoding", "Memset (Device)",
)  # fmt: skip
TOO_LARGE = ("b5_ramp", "b33_ramp", "b1_s20011")  # for the interpreter
LARGE = ("ramp", "full")  # seconds of the interpreter: once for a version is enough
SHARED, REGISTERS = kit.SHARED, kit.REGISTERS
SPARE = {"attend_split": 40}  # bytes a thread may spill, by kernel: the fastest one without lengths on an H200 spills some as well
pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def patches(task: str) -> list[str]:
    return sorted(p.name for p in (FOLDER / task / "deck").glob("*.patch"))


def entries(task: str) -> list[str]:
    """Those of the deck that are whole files."""
    return sorted(p.name for p in (FOLDER / task / "deck").iterdir() if p.is_dir())


ENTRIES = [f"{task}/{entry}" for task in TASKS for entry in entries(task)]


# --------------------------------------------------------------------------------------------- the tasks


@pytest.mark.parametrize("name", TASKS)
def test_tasks_say_what_they_should(name: str) -> None:
    task = load(FOLDER / name)
    assert task.engine is not None
    assert (task.engine.model, task.engine.slot, task.engine.cells) == ("llama-3.1-8b-16", name, CELLS)
    assert task.engine.opponents == campaign.read(FOLDER / "campaign.toml").engine.opponents != ()
    assert {"sdpa_gqa_exact", "sdpa_gqa_exact max-autotune"} <= set(task.engine.opponents)
    assert (task.rules.cuda_graphs, task.rules.library_kernels) == ("required", "forbidden")
    assert {"eager", "compiled"} <= {b.name for b in task.baselines}
    assert (FOLDER / name / "ideas.md").read_text().startswith("1. ")
    assert set(task.dispatch.fallbacks) <= {b.name for b in task.baselines}


@pytest.mark.parametrize("name", TASKS)
def test_the_limit_is_what_must_be_moved(name: str) -> None:
    from keepfast.expr import parse

    task = load(FOLDER / name)
    for case in task.cases:
        axes = dict(case.axes)
        assert parse(task.limit.bytes, list(axes)).value(axes) == LEAST[name](axes), case.name


@pytest.mark.parametrize("name", TASKS)
def test_the_signature_is_the_slots(name: str) -> None:
    taken = slots.fit(slots.kind(name), load(FOLDER / name).signature, name, {})
    assert [t.name for t in taken if t.given] == [o.name for o in slots.kind(name).offers if o.must]


def test_the_campaign_names_every_task_and_their_engine() -> None:
    found = campaign.read(FOLDER / "campaign.toml")
    assert [(part.folder, part.slot) for part in found.parts] == [(name, name) for name in TASKS]
    assert (found.engine.model, found.engine.cells) == ("llama-3.1-8b-16", CELLS)


def test_the_profile_says_kernels_by_time() -> None:
    from keepfast.engine.base import STOCK, Account, Cell, Graphs

    graphs = Graphs("decode 8192 x 8", STOCK, 1.0, (("gemm", 7), ("copy", 2)), (("gemm", 0.001), ("copy", 0.003)))
    account = Account("transformers", "m", "x", (), (), (STOCK,), (Cell("decode", 8192, 8),), (), (), (graphs,), ())
    lines = list(kit.module_at(FOLDER / "profile_step.py", "profile_step").table(account, 1))
    assert lines == ["decode 8192 x 8, stock: 4.000 ms in 9 kernels", " 75.0 %     3.000 ms      2 x  copy"]


def test_no_kernel_is_counted_as_another() -> None:
    """The engine finds kernels in a trace by parts of their names, functions that a kernel calls included."""
    jitted = re.compile(r"@triton\.jit(?:\(.*\))?\ndef (\w+)")
    found = {t: {n for p in (FOLDER / t).rglob("kernel.py") for n in jitted.findall(p.read_text())} for t in TASKS}
    assert all(found.values())
    pairs = [(a, b) for mine in TASKS for theirs in TASKS if mine != theirs for a in found[mine] for b in found[theirs] if a in b]
    assert pairs == [], "the norms have one kernel each, and no helper is shared"
    assert [(n, other) for names in found.values() for n in names for other in OTHERS if n in other] == []


@pytest.mark.parametrize("name", TASKS)
def test_every_mutant_dies_on_the_small_cases(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    from keepfast.oracle.lint import Linter
    from keepfast.oracle.reference import Reference

    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "keepfast_reference", ModuleType("keepfast_reference"))
    found = load(FOLDER / name)
    ordered = sorted(((case, product(case)) for case in found.cases), key=lambda each: each[1])
    sized = [*ordered[:3], next(each for each in ordered[3:] if each[0].timed)]  # a judge has a timed one among its three
    report = Linter(Reference(replace(found, cases=tuple(c for c, _ in sized)), "cpu")).run(sized)
    assert report.error == ""
    assert len(report.mutants) >= 8


@pytest.mark.parametrize("name", TASKS)
def test_the_reference_is_what_the_slot_replaces(name: str) -> None:
    pytest.importorskip("transformers")
    from keepfast.engine.torch_reference import FUNCTIONS

    task = load(FOLDER / name)
    assert list(kit.mistakes(task, FUNCTIONS[name], small_cases(task))) == []


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.compile's own imports
@pytest.mark.parametrize(("name", "path"), [(t, p) for t in TASKS for p in sorted((FOLDER / t / "baselines").glob("*.py"))])
def test_baselines_are_right(name: str, path: Path) -> None:
    kernel = kit.module_at(path, f"baseline_{path.stem}").kernel
    with torch.compiler.set_stance("force_eager"):
        task = load(FOLDER / name)
        assert list(kit.mistakes(task, kernel, small_cases(task))) == []


def test_with_every_slot_filled_no_kernel_of_the_library_is_left_in_a_layer() -> None:
    """Operators that launch something, by torch's dispatcher, in steps of one layer and of two; a filled slot counts as one."""
    pytest.importorskip("transformers")
    found = {names: [launching(layers, names) for layers in (1, 2)] for names in ((), TASKS)}
    stock, filled = (Counter(two) - Counter(one) for one, two in found.values())
    assert sum(stock.values()) > 45
    assert filled == {"attention_decode": 1, "add_rms_norm": 2, "rotary_cache": 1, "mlp_activation": 1, "linear": 7}
    rest = found[TASKS][0] - filled
    assert (rest["rms_norm"], rest["linear"]) == (1, 1)
    assert sum(rest.values()) <= 12, "words, angles, the first norm and the vocabulary"


# --------------------------------------------------------------------------------------------- the kernels


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders with kernels by task: the starts, what becomes of them when every patch is applied, and the whole files, one of each task."""
    found = {"start": FOLDER, "patched": tmp_path_factory.mktemp("patched")}
    for name in filter(patches, TASKS):
        laid(FOLDER / name, found["patched"] / name)
        for patch in patches(name):
            assert kit.git_apply(found["patched"] / name, FOLDER / name / "deck" / patch) == "", patch
    for name in TASKS:
        for i, entry in enumerate(entries(name)):
            place = found.setdefault(f"deck {i}", tmp_path_factory.mktemp(f"deck{i}"))
            laid(FOLDER / name / "deck" / entry, place / name)
    return found


def laid(source: Path, target: Path) -> None:
    shutil.copytree(source / "kernel", target / "kernel", ignore=shutil.ignore_patterns("__pycache__"))


def version_of(entry: str) -> str:
    """The folder of `versions` with an entry TASK/NNN-slug."""
    name, _, slug = entry.partition("/")
    return f"deck {entries(name).index(slug)}"


@pytest.mark.parametrize("name", TASKS)
def test_decks_are_numbered_and_say_what_they_do(name: str) -> None:
    found = sorted([*patches(name), *entries(name)])
    assert [e[:4] for e in found] == [f"{i:03}-" for i in range(1, len(found) + 1)]
    assert 3 <= len(found) <= 9
    for entry in entries(name):
        folder = FOLDER / name / "deck" / entry / "kernel"
        space = tunables.parse((folder / "tunables.toml").read_text())
        assert space.valid(dict(space.values)) is None, entry
        text = (folder / "kernel.py").read_text()
        used = re.search(r"from keepfast_tunables import (.*)", text)
        assert used is not None
        assert sorted(used[1].split(", ")) == sorted(space.names)
        assert text.startswith('"""')


@pytest.mark.parametrize(("name", "patch"), [(t, p) for t in TASKS for p in patches(t)])
def test_patches_apply_to_the_start(tmp_path: Path, name: str, patch: str) -> None:
    laid(FOLDER / name, tmp_path)
    assert not (FOLDER / name / "deck" / patch).read_text().startswith(("diff", "---"))
    assert kit.git_apply(tmp_path, FOLDER / name / "deck" / patch) == ""
    assert patch[:4] == f"{patches(name).index(patch) + 1:03}-"


@cache
def interpreted(name: str, folders: tuple[str, ...]) -> dict[str, dict[str, list[str]]]:
    """By folder and end of the tunables: what is wrong."""
    found: dict[str, dict[str, list[str]]] = {}
    for row in program("interpret", name, *folders):
        found.setdefault(row["folder"], {})[row["tunables"]] = row["wrong"]
    return found


def said_of(versions: dict[str, Path], name: str, version: str) -> dict[str, list[str]]:
    """All versions of a task in one process."""
    folders = tuple(str(place) for place in versions.values() if (place / name / "kernel").is_dir())
    return interpreted(name, folders)[str(versions[version])]


@pytest.mark.parametrize(("version", "name"), [(v, t) for v in ("start", "patched") for t in TASKS if v == "start" or patches(t)])
def test_kernels_are_right_as_they_are_and_at_the_far_end_of_their_tunables(versions: dict[str, Path], version: str, name: str) -> None:
    assert said_of(versions, name, version) == {"as they are": [], "far end": []}


@pytest.mark.parametrize("entry", ENTRIES)
def test_right_entries_are_right_and_wrong_ones_wrong(versions: dict[str, Path], entry: str) -> None:
    said = said_of(versions, entry.partition("/")[0], version_of(entry))
    assert bool(said["as they are"]) == (entry in WRONG), said
    assert entry in WRONG or said["far end"] == []


@cache
def compiled(folders: tuple[str, ...]) -> tuple[dict[str, Any], ...]:
    pytest.importorskip("transformers")
    return tuple(program("compile", *folders))


def compiled_of(versions: dict[str, Path], version: str) -> list[dict[str, Any]]:
    return [row for row in compiled(tuple(map(str, versions.values()))) if row["folder"] == str(versions[version])]


def fits_the_card(rows: list[dict[str, Any]]) -> None:
    """In each cell of the engine, each launch."""
    assert {row["cell"] for row in rows} == {c[1] for c in CELLS}
    for row in rows:
        assert row["scratch"] == 0, row
        assert row["shared"] <= SHARED, row
        assert row["spills"] <= SPARE.get(row["kernel"], 0), row
        assert row["registers"] * row["threads"] <= REGISTERS, row


@pytest.mark.parametrize(("version", "name"), [(v, t) for v in ("start", "patched") for t in TASKS if v == "start" or patches(t)])
def test_kernels_compile_for_hopper_with_what_the_slots_of_the_model_give(versions: dict[str, Path], version: str, name: str) -> None:
    """One layer of the model on `meta`, all slots filled: each launch of a decode step is compiled."""
    fits_the_card([row for row in compiled_of(versions, version) if row["task"] == name])


@pytest.mark.parametrize("entry", ENTRIES)
def test_entries_compile_for_hopper_as_well(versions: dict[str, Path], entry: str) -> None:
    fits_the_card([row for row in compiled_of(versions, version_of(entry)) if row["task"] == entry.partition("/")[0]])


def test_the_step_launches_each_kernel_as_often_as_the_model_has_uses_for_it(versions: dict[str, Path]) -> None:
    rows = compiled_of(versions, "start")
    found = {name: sum(row["task"] == name and row["cell"] == 1024 for row in rows) for name in TASKS}
    assert found == {"attention_decode": 2, "add_rms_norm": 2, "rotary_cache": 1, "mlp_activation": 1, "rms_norm": 1, "linear": 8}


@pytest.mark.parametrize("entry", [e for e in ENTRIES if e.startswith("linear/")])
def test_one_kernel_of_a_version_is_launched_for_every_product(versions: dict[str, Path], entry: str) -> None:
    """The engine counts the kernel that ran most often: seven products of a layer, and the vocabulary's."""
    rows = compiled_of(versions, version_of(entry))
    for _, context, _ in CELLS:
        names = [row["kernel"] for row in rows if (row["task"], row["cell"]) == ("linear", context)]
        assert max(map(names.count, names)) == 8


@pytest.mark.parametrize("quick", [False, True])
def test_a_stack_is_a_campaign_of_the_chosen_entries(tmp_path: Path, quick: bool) -> None:
    script = kit.module_at(FOLDER / "stack.py", "stack")
    assert set(script.CHOICE) == set(TASKS)
    out, chosen = tmp_path / "out", {"attention_decode": "001,002", "linear": script.CHOICE["linear"], "rms_norm": "start"}
    script.stack(out, chosen, quick=quick)
    assert [(p.folder, p.only) for p in campaign.read(out / "campaign.toml").parts] == [
        ("attention_decode", ""), ("rms_norm", ""), ("linear", "*"),
    ]  # fmt: skip
    engines = [campaign.read(out / "campaign.toml").engine, load(out / "linear").engine]
    assert all((e.rounds, bool(e.opponents)) == ((3, False) if quick else (8, True)) for e in engines if e is not None)
    text = {name: (out / name / "kernel/kernel.py").read_text() for name in TASKS}
    assert "sums = sums * shrink" in text["attention_decode"]
    assert text["linear"] == (FOLDER / "linear/deck/009-together/kernel/kernel.py").read_text()
    assert text["rms_norm"] == (FOLDER / "rms_norm/kernel/kernel.py").read_text()
    with pytest.raises(SystemExit, match="linear has no entry `42`: start, 001-"):
        script.entry("linear", "42")
    assert all(script.entry(name, script.CHOICE[name]).is_dir() for name in TASKS)
    assert not {f"{name}/{script.entry(name, script.CHOICE[name]).name}" for name in TASKS} & WRONG


# --------------------------------------------------------------------------------------------- what both halves need


VIEWS = {
    "view", "_unsafe_view", "transpose", "t", "expand", "slice", "select", "unsqueeze", "squeeze", "reshape", "alias", "detach", "permute",
    "as_strided", "split", "chunk", "unbind", "empty", "empty_like", "new_empty", "lift_fresh",
}  # fmt: skip


def launching(layers: int, names: tuple[str, ...]) -> Counter[str]:
    """What a decode step of so many layers calls that is no view, on `meta`, with slots filled by plain torch that counts as one call."""
    from torch.utils._python_dispatch import TorchDispatchMode

    from keepfast.engine import torch_reference
    from keepfast.engine.base import STOCK, Cell
    from keepfast.engine.torch_model import Cache, prompt
    from keepfast.engine.torch_model import load as model_of
    from keepfast.engine.torch_seat import Tally
    from keepfast.engine.torch_slots import Wardrobe
    from keepfast.engine.torch_stage import Decode
    from keepfast.engine.transformers import Arm, Fill, Plan

    class Counting(TorchDispatchMode):  # type: ignore[misc,unused-ignore]
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = function.__name__.partition(".")[0]
            found.update([] if name in VIEWS or within else [name])
            return function(*args, **(kwargs or {}))

    def counted(entry: Any, name: str) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            found[name] += 1
            within.append(name)
            made = entry.function(*given)
            within.pop()
            return made

        return call

    found: Counter[str] = Counter()
    within: list[str] = []
    cell = Cell("decode", 1024, 1)
    fills = tuple(
        Fill(n, torch_reference.__file__, n, slots.kind(n).signature, n, only="*" * (n == "linear")) for n in names
    )  # fmt: skip
    plan = Plan(ONE_LAYER.replace('"layers": 1', f'"layers": {layers}'), (cell,), (Arm(STOCK), Arm("kept", fills)))
    model = model_of(plan, "meta")
    wardrobe = Wardrobe(model, plan, Tally(timed=False))
    for seat in wardrobe.dresses["kept"].seats:
        seat.entry = type(seat.entry)(counted(seat.entry, seat.fill.slot), ())
    wardrobe.wear(STOCK)
    filled = Cache(model, cell)
    prompt(model, filled, torch.zeros(cell.batch, 1, dtype=torch.long, device="meta"))
    wardrobe.wear("kept")
    stage = Decode(cell, filled, wardrobe.moment, 0, model.device)
    with Counting():
        stage.step(model)
    return found


def product(case: Case) -> int:
    """Of a case's axes: a measure of its size."""
    found = 1
    for axis, n in case.axes:
        found *= n if axis != "tokens" else 1
    return found


def small_cases(task: Task) -> Iterator[Case]:
    """Those that are only checked, and are small."""
    yield from (case for case in task.cases if not case.timed and case.name not in TOO_LARGE)


def program(mode: str, *words: str) -> list[dict[str, Any]]:
    """This file in a process of its own: one JSON object a line."""
    env = dict(os.environ) | kit.ONE_CORE | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    env["TRITON_INTERPRET"] = str(int(mode == "interpret"))
    done = subprocess.run([sys.executable, __file__, mode, *words], env=env, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def interpret(name: str, *folders: str) -> None:
    """Prints what is wrong with the kernels of a task in each folder, with tunables as they are and, of those that are right, at the far
    end."""
    kit.mend_interpreter()
    poison()
    task = load(FOLDER / name)
    fewer = replace(task, cases=tuple(case for case in task.cases if case.name not in LARGE))
    for folder in folders:
        for said, values, cases in (("as they are", {}, task), ("far end", kit.far(Path(folder) / name), fewer)):
            module = kit.kernel_at(Path(folder) / name, values)
            vars(module).update({each: lambda *_: None for each in UNKNOWN})
            wrong = list(kit.mistakes(cases, module.kernel, small_cases(cases)))
            print(json.dumps({"folder": folder, "tunables": said, "wrong": wrong}), flush=True)
            if wrong:
                break


def compile_all(*folders: str) -> None:
    """Of each folder: runs a decode step of one layer on `meta` in each cell, with the slots filled that it has kernels for; prints what
    each launch compiled to."""
    from keepfast.engine.base import STOCK, Cell
    from keepfast.engine.torch_model import Cache, prompt
    from keepfast.engine.torch_model import load as model_of
    from keepfast.engine.torch_seat import Tally
    from keepfast.engine.torch_slots import Wardrobe
    from keepfast.engine.torch_stage import Decode
    from keepfast.engine.transformers import Arm, Plan, fill

    made = kit.install_compiler()
    cells = tuple(Cell(*cell) for cell in CELLS)
    model = model_of(Plan(ONE_LAYER, cells), "meta")
    for folder in folders:
        names = [name for name in TASKS if (Path(folder) / name / "kernel").is_dir()]
        fills = tuple(fill(load(FOLDER / name), name, tree=Path(folder) / name, only="*" * (name == "linear")) for name in names)
        plan = Plan(ONE_LAYER, cells, (Arm(STOCK), Arm("kept", fills)))
        wardrobe = Wardrobe(model, plan, Tally(timed=False))
        owners = {n: f.task for f, seat in zip(fills, wardrobe.dresses["kept"].seats, strict=True) for n in seat.entry.kernels}
        for cell in cells:
            wardrobe.wear(STOCK)  # a cache has shapes once something was put into it
            filled = Cache(model, cell)
            prompt(model, filled, torch.zeros(cell.batch, 1, dtype=torch.long, device="meta"))
            wardrobe.wear("kept")
            Decode(cell, filled, wardrobe.moment, 0, model.device).step(model)
            for name, kernel in made:
                row = {"folder": folder, "task": owners[name], "cell": cell.context, "kernel": name}
                print(json.dumps(row | kit.resources(kernel)), flush=True)
            made.clear()
        wardrobe.wear(STOCK)


if __name__ == "__main__":
    {"interpret": interpret, "compile": compile_all}[sys.argv[1]](*sys.argv[2:])
