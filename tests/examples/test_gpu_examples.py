"""The GPU examples without a GPU: tasks load, references are clean in float64, decks apply, kernels compile for a Hopper GPU and compute
what they should in Triton's interpreter.

Run as a program (`compile TASK` or `interpret TASK ENTRY...`) this file does the part that must have a process of its own: both put
something in the place of Triton's driver. What only a card can show is in tests/gpu.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from cardless import exact_products, poison  # noqa: E402
from msgspec.structs import replace  # noqa: E402

from keepfast.model import Case, Task  # noqa: E402
from keepfast.task import tunables  # noqa: E402
from keepfast.task.load import load  # noqa: E402

EXAMPLES = Path(__file__).parents[2] / "examples" / "gpu"
TASKS = ("rmsnorm", "rmsnorm_plain", "softmax", "quant", "matmul")
START = "start"
WRONG = {
    "rmsnorm": ("003-leave-residual", "005-no-epsilon.patch"),
    "rmsnorm_plain": ("003-no-epsilon.patch",),
    "softmax": ("003-no-maximum.patch",),
    "quant": ("004-no-floor.patch", "005-powers-of-two.patch"),
    "matmul": ("003-whole-depths.patch",),
}
NARROW = (START, "001-one-pass-for-maximum-and-sum")  # a little of a row at a time, so a thread gets less than 16 bytes
AUTOTUNED = ("matmul/010-autotuned",)
# Cases whose kernels are compiled, and small ones beside those of the task, so that rows are fetched ahead and tiles have neighbours.
COMPILED = {
    "rmsnorm": ("decode16", "prefill16384"),
    "rmsnorm_plain": ("m16384_n4096",),
    "softmax": ("m32768_n8192", "m128_n131072"),
    "quant": ("decode16", "prefill16384"),
    "matmul": ("decode16", "square"),
}
SMALL: dict[str, tuple[tuple[str, dict[str, int]], ...]] = {
    "rmsnorm": (("ahead", {"m": 11, "n": 512}),),
    "rmsnorm_plain": (("ahead", {"m": 11, "n": 512}),),
    "softmax": (("ahead", {"m": 11, "n": 512}), ("pieces", {"m": 2, "n": 17000})),
    "quant": (("ahead", {"m": 40, "n": 384}),),
    "matmul": (("ahead", {"m": 160, "n": 384, "k": 72}),),
}
ONE_CORE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # small products: threads would wait for each other
MANY = {"FEW": 1}  # of interpreted kernels: so many rows are many
SHARED, REGISTERS, SPILLS = 232448, 65536, 64  # bytes a block, a multiprocessor has, bytes a thread may spill
pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def entries(task: str) -> list[str]:
    return sorted(p.name for p in (EXAMPLES / task / "deck").iterdir())


def versions(task: str) -> list[str]:
    """The start and the entries that are whole files."""
    return [START, *(e for e in entries(task) if not e.endswith(".patch"))]


def folder_of(task: str, version: str) -> Path:
    return EXAMPLES / task if version == START else EXAMPLES / task / "deck" / version


def below(task: str, patch: str) -> list[str]:
    """What may lead when the turn of a patch comes: the start and the whole-file entries before it that are right."""
    return [v for v in versions(task) if v == START or (v < patch and v not in WRONG[task])]


def git_apply(folder: Path, patch: Path) -> str:
    return subprocess.run(["git", "apply", str(patch)], cwd=folder, capture_output=True, text=True, check=False).stderr


def workspace(tmp_path: Path, task: str, version: str, patch: str = "") -> Path:
    """The kernel of a version, with a patch of the deck applied."""
    folder = tmp_path / f"{version}-{patch}"
    shutil.copytree(folder_of(task, version) / "kernel", folder / "kernel", ignore=shutil.ignore_patterns("__pycache__"))
    if patch:
        assert git_apply(folder, EXAMPLES / task / "deck" / patch) == "", f"{patch} on {version}"
    return folder


def program(mode: str, task: str, *words: str, interpreted: bool = False) -> list[dict[str, Any]]:
    """This file in a process of its own: one JSON object a line."""
    env = dict(os.environ) | {
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        "TRITON_INTERPRET": str(int(interpreted)),
        **ONE_CORE,
    }
    argv = [sys.executable, __file__, mode, task, *words]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


# --------------------------------------------------------------------------------------------- tasks and references


@pytest.mark.parametrize("name", TASKS)
def test_tasks_say_what_they_should(name: str) -> None:
    task = load(EXAMPLES / name)
    assert task.languages == ("triton",)
    assert (task.rules.cuda_graphs, task.rules.library_kernels) == ("required", "forbidden")
    assert task.limit.bytes
    assert task.tunables
    assert {"eager", "compiled"} <= {b.name for b in task.baselines}
    assert (EXAMPLES / name / "ideas.md").read_text().startswith("1. ")
    numbers = [e[:4] for e in entries(name)]
    assert numbers == [f"{i:03}-" for i in range(1, len(numbers) + 1)]


@pytest.mark.parametrize("name", TASKS)
def test_references_are_clean_in_float64(name: str) -> None:
    """`both` refuses whatever is not float64 when the arguments are."""
    from keepfast.oracle.reference import Reference

    task = load(EXAMPLES / name)
    reference = Reference(task, "cpu")
    for case in small_cases(task):
        working, exact = reference.both(reference.inputs(case, (1, 2, 3, 4)))
        assert list(working) == list(task.signature.results)
        for result, tensor in exact.items():
            assert tensor.shape == working[result].shape


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.compile's own imports
@pytest.mark.parametrize("name", TASKS)
def test_python_baselines_are_right(name: str) -> None:
    found = {path.stem: baseline(name, path) for path in sorted((EXAMPLES / name / "baselines").glob("*.py"))}
    for stem in ("eager", "compiled", "library"):
        assert found.get(stem, "") == ""
    for stem in ("liger", "quack_cute"):
        said = found.get(stem, "")
        assert said == "" or (said.startswith("ImportError: ") and "pip install" in said)


def baseline(name: str, path: Path) -> str:
    """What is wrong with a baseline on the CPU; torch.compile runs its function as it is."""
    kernel = module_at(path, f"baseline_{path.stem}").kernel
    with torch.compiler.set_stance("force_eager"):
        try:
            task = load(EXAMPLES / name)
            return "; ".join(mistakes(task, kernel, small_cases(task)))
        except ImportError as error:
            return f"ImportError: {error}"


# --------------------------------------------------------------------------------------------- decks


@pytest.mark.parametrize(("name", "patch"), [(t, e) for t in TASKS for e in entries(t) if e.endswith(".patch")])
def test_patches_apply_to_all_that_may_lead(tmp_path: Path, name: str, patch: str) -> None:
    title = (EXAMPLES / name / "deck" / patch).read_text().splitlines()[0]
    assert title
    assert not title.startswith(("diff", "---"))
    for version in below(name, patch):
        folder = workspace(tmp_path, name, version, patch)
        compile((folder / "kernel/kernel.py").read_text(), patch, "exec")


@pytest.mark.parametrize("name", TASKS)
def test_patches_apply_one_after_the_other(tmp_path: Path, name: str) -> None:
    """Those that change something else than the ones before."""
    folder = workspace(tmp_path, name, START)
    refused = [e for e in entries(name) if e.endswith(".patch") and git_apply(folder, EXAMPLES / name / "deck" / e)]
    assert len(refused) <= 1  # two ideas for one line


@pytest.mark.parametrize("name", TASKS)
def test_every_version_compiles_for_hopper(name: str) -> None:
    found = program("compile", name)
    assert {row["version"] for row in found} == {*versions(name), *(e for e in entries(name) if e.endswith(".patch"))}
    for row in found:
        assert row["scratch"] == 0, row  # nothing that would have to be allocated at the launch
        assert row["shared"] <= SHARED, row
        assert row["spills"] <= SPILLS, row
        assert row["registers"] * row["threads"] <= REGISTERS, row
        assert row["vector"] or row["version"] in NARROW, row  # 16 bytes an access


@pytest.mark.parametrize("name", TASKS)
def test_right_entries_are_right_and_wrong_ones_wrong(tmp_path: Path, name: str) -> None:
    """Whole files, as they are and at the far end of their tunables; patches on the newest version that they may meet."""
    whole = [v for v in versions(name) if f"{name}/{v}" not in AUTOTUNED]
    folders = {v: str(folder_of(name, v)) for v in whole}
    folders |= {f"far end of {v}": f"far:{folder_of(name, v)}" for v in whole if v not in WRONG[name]}
    for patch in (e for e in entries(name) if e.endswith(".patch")):
        folders[patch] = str(workspace(tmp_path, name, below(name, patch)[-1], patch))
    found = {row["folder"]: row["wrong"] for row in program("interpret", name, *folders.values(), interpreted=True)}
    said = {entry: found[folder] for entry, folder in folders.items()}
    assert {entry for entry, wrong in said.items() if wrong} == set(WRONG[name]), said


# --------------------------------------------------------------------------------------------- what both halves need


def module_at(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def kernel_at(folder: Path, values: Mapping[str, Any] | None = None) -> ModuleType:
    """kernel/kernel.py as keepfast loads it: its tunables are the module keepfast_tunables."""
    given, file = ModuleType("keepfast_tunables"), folder / "kernel/tunables.toml"
    if file.exists():
        space = tunables.parse(file.read_text())
        given.__dict__.update(dict(space.values) | {k: v for k, v in (values or {}).items() if k in space.names})
    sys.modules["keepfast_tunables"] = given
    return module_at(folder / "kernel/kernel.py", "candidate")


def far(folder: Path) -> dict[str, Any]:
    """The last value of each tunable that the others allow."""
    file = folder / "kernel/tunables.toml"
    if not file.exists():
        return {}
    space, found = tunables.parse(file.read_text()), {}
    for tunable in space.tunables:
        found[tunable.name] = next(c for c in reversed(tunable.choices) if space.valid(found | {tunable.name: c}) is None)
    return found


def small_cases(task: Task) -> Iterator[Case]:
    yield from (case for case in task.cases if not case.timed)
    for name, axes in SMALL[task.name]:
        yield replace(task.cases[0], name=name, axes=tuple(axes.items()))


def mistakes(task: Task, kernel: Any, cases: Iterable[Case]) -> Iterator[str]:
    """What the oracle says to a kernel over these cases; arguments that may not change are looked at as well."""
    from keepfast.oracle import compare
    from keepfast.oracle.reference import Reference

    reference = Reference(task, "cpu")
    for case in cases:
        values = reference.inputs(case, (5, 6, 7, 8))
        working, exact = reference.both(values)
        given = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in values.items()}
        made = kernel(*given.values())
        fresh = () if made is None else made if isinstance(made, tuple) else (made,)
        got = dict(zip(task.signature.results, [*(given[a.name] for a in task.signature.written), *fresh], strict=True))
        for name, result in got.items():
            if (result.shape, result.dtype) != (working[name].shape, working[name].dtype):
                yield f"{case.name}: {name} is {result.dtype}{list(result.shape)}"
        limits = compare.limits_of(task, case)
        said = [compare.judge(name, got[name], working[name], exact[name], limits).wrong for name in got]
        if any(said) and reference.has_compare:
            said = [reference.compare(case, values, got, exact)]
        yield from (f"{case.name}: {one}" for one in said if one)
        read = [a.name for a in task.signature.tensors if not a.written]
        yield from (f"{case.name}: {name} was changed" for name in read if not torch.equal(given[name], values[name]))


# --------------------------------------------------------------------------------------------- the interpreter


def interpret(task: Task, words: Sequence[str]) -> None:
    """Prints what is wrong with the kernels in some folders; `far:FOLDER` takes the far end of its tunables."""
    mend_interpreter()
    poison()
    torch.cuda.get_device_properties = lambda device=None: SimpleNamespace(multi_processor_count=2)
    for word in words:
        folder = Path(word.removeprefix("far:"))
        module = kernel_at(folder, MANY | (far(folder) if word.startswith("far:") else {}) | MANY)
        if task.name == "quant":
            module.FEW = 64
        print(json.dumps({"folder": word, "wrong": list(mistakes(task, module.kernel, small_cases(task)))}), flush=True)


def mend_interpreter() -> None:
    """Triton's interpreter cuts bfloat16 instead of rounding, gets some 8-bit floats wrong, multiplies bfloat16 as whole numbers
    (`exact_products`), and knows no assembler; the only assembler here is tanh.approx."""
    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter

    convert = interpreter._convert_float
    rounded = {tl.bfloat16: (torch.bfloat16, torch.int16, "uint16"), tl.float8e4nv: (torch.float8_e4m3fn, torch.uint8, "uint8")}

    def converted(data: Any, source: Any, target: Any, mode: Any) -> Any:
        if source != tl.float32 or target not in rounded:
            return convert(data, source, target, mode)
        to, bits, name = rounded[target]
        floats = torch.from_numpy(np.ascontiguousarray(data).view(np.float32).copy())
        return floats.to(to).view(bits).numpy().view(name).reshape(data.shape)

    def assembler(self: Any, text: str, constraints: str, values: Any, *others: Any) -> Any:
        assert text.startswith("tanh.approx.f32")
        found = interpreter.TensorHandle(np.tanh(values[0].data), values[0].dtype)
        return SimpleNamespace(get_result=lambda i: found)

    interpreter._convert_float = converted
    exact_products()
    interpreter.InterpreterBuilder.create_inline_asm = assembler


# --------------------------------------------------------------------------------------------- the compiler


class NoDriver:
    """Stands where Triton's driver stands: a Hopper GPU that nothing is launched on."""

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int = 0) -> int:
        return 0


def compile_all(task: Task) -> None:
    """Compiles every entry for the cases of COMPILED, whatever tensors without memory need; prints what came out."""
    import tempfile

    made = install_compiler()
    named = [(v, folder_of(task.name, v)) for v in versions(task.name)]
    with tempfile.TemporaryDirectory() as space:
        for patch in (e for e in entries(task.name) if e.endswith(".patch")):
            named.append((patch, workspace(Path(space), task.name, below(task.name, patch)[-1], patch)))
        for version, folder in named:
            module = kernel_at(folder)
            for case in (c for c in task.cases if c.name in COMPILED[task.name]):
                module.kernel(*shapes(task, case).values())
                for name, kernel in made:
                    print(json.dumps({"version": version, "case": case.name, "kernel": name, **resources(kernel)}), flush=True)
                made.clear()


def shapes(task: Task, case: Case) -> dict[str, Any]:
    """The arguments of a case, without memory."""
    reference = module_at(EXAMPLES / task.name / "reference.py", "reference")
    draw, torch.randn = torch.randn, lambda *size, dtype, **rest: torch.empty(*size, dtype=dtype, device="meta")
    try:
        made: dict[str, Any] = reference.inputs(SimpleNamespace(name=case.name, **dict(case.axes)), SimpleNamespace(device="meta"))
        return made
    finally:
        torch.randn = draw


def install_compiler() -> list[tuple[str, Any]]:
    """From now on a launch compiles and is listed; an autotuned kernel compiles all its configurations."""
    from triton.runtime import driver
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    made: list[tuple[str, Any]] = []
    run = JITFunction.run

    def compiled(self: Any, *given: Any, grid: Any, warmup: bool, **named: Any) -> Any:
        found = run(self, *given, grid=grid, warmup=True, **named)
        made.append((self.__name__, found))
        return found

    def tuned(self: Any, *given: Any, **named: Any) -> None:
        for config in self.configs:
            self.fn.run(*given, **named, **config.all_kwargs())

    JITFunction.run, Autotuner.run = compiled, tuned
    driver.set_active(NoDriver())
    torch.cuda.get_device_properties = lambda device=None: SimpleNamespace(multi_processor_count=132)
    return made


def resources(kernel: Any) -> dict[str, Any]:
    """Registers and spills as the assembler says; `vector`: memory is moved 16 bytes at a time, by threads or by the copy engine."""
    import tempfile

    from triton import knobs

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        said = subprocess.run([knobs.nvidia.cuobjdump.path, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    used = re.search(r"REG:(\d+) STACK:(\d+)", said)
    assert used is not None
    wide = re.search(r"\bv4\.b32|cp\.async\.cg|cp\.async\.bulk", kernel.asm["ptx"]) is not None
    return {
        "registers": int(used[1]),
        "spills": int(used[2]),
        "shared": kernel.metadata.shared,
        "threads": 32 * kernel.metadata.num_warps,
        "scratch": kernel.metadata.global_scratch_size,
        "vector": wide,
    }


if __name__ == "__main__":
    chosen = load(EXAMPLES / sys.argv[2])
    compile_all(chosen) if sys.argv[1] == "compile" else interpret(chosen, sys.argv[3:])
