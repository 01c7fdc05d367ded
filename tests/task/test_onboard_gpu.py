"""Onboarding for a GPU, on the CPU: Triton runs in its interpreter, the oracle is the judge's own process.

foreign/ has the shapes of public repositories: a src layout with an autograd.Function (as Liger-Kernel), helpers of one's own package and
@triton.autotune (as flash-linear-attention and vLLM), relative imports below a package that cannot be imported here (as unsloth), a file
that is no module name and runs when it is imported (as Triton's tutorials), and KernelBench problems. No code of theirs is in it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from keepfast.errors import KeepfastError, TaskError, UsageError  # noqa: E402
from keepfast.gpu.messages import Mutate, Mutated  # noqa: E402
from keepfast.judge import builder  # noqa: E402
from keepfast.model import Task  # noqa: E402
from keepfast.oracle.reference import Results  # noqa: E402
from keepfast.task import asked, tunables  # noqa: E402
from keepfast.task.load import load  # noqa: E402
from keepfast.task.onboard_kernelbench import KernelBenchOrigin  # noqa: E402
from keepfast.task.onboard_op import OpOrigin  # noqa: E402
from keepfast.task.onboard_python import PythonOrigin  # noqa: E402
from keepfast.task.onboard_torch import init  # noqa: E402
from keepfast.task.paths import expand  # noqa: E402
from tests.oracle import kit  # noqa: E402

FOREIGN = Path(__file__).parent / "foreign"
SEEDS = ((1, 2, 3, 4), (5, 6, 7, 8))
# A candidate's process in short: its files in a folder of their own, the entry found as the capture finds it, autotuning held still.
CALL = """
import sys
from pathlib import Path

import torch
from keepfast.capture import autotune, load

data, *subjects = sys.argv[1:]
draws = torch.load(data)
made = []
for tree, entry in (s.split("::") for s in subjects):
    load.search(Path(tree), entry, ())
    function = load.python(Path(tree), entry, "kernel")
    autotune.Autotuned(Path(tree)).restrict({})
    given = [[v.clone() if isinstance(v, torch.Tensor) else v for v in values] for values in draws]
    made.append([(values, function(*values)) for values in given])
torch.save(made, data)
"""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with the foreign files; also the current folder."""
    top = tmp_path / "their repo"
    shutil.copytree(FOREIGN, top, ignore=shutil.ignore_patterns("__pycache__"))
    (top / ".git").mkdir()
    monkeypatch.chdir(top)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    return top


def made(origin: Any, name: str = "t") -> tuple[Task, tuple[str, ...]]:
    written = init(Path("tasks") / name, origin)
    return load(Path("tasks") / name), written.notes


def tree_of(task: Task, tmp_path: Path, baseline: str = "") -> tuple[Path, str]:
    """What a candidate's process would be given, and the entry."""
    tree = tmp_path / f"tree {task.name} {baseline}"
    files = {f.path: f.data for f in builder._readable(task)}
    entry = task.entry_path
    if baseline:
        entry = (Path(task.folder) / baseline).relative_to(task.root).as_posix()
        files = {entry: (Path(task.folder) / baseline).read_bytes()}
    else:
        files |= {path: (Path(task.root) / path).read_bytes() for path in expand(Path(task.root), task.editable)}
    for path, data in files.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_bytes(data)
    (tree / "keepfast_tunables.py").write_text(tunables.python(tunables.parse("")))
    return tree, entry


def called(task: Task, tmp_path: Path, draws: list[dict[str, Any]], *baselines: str) -> list[list[Results]]:
    """What the entry, then each of the baselines, give for each of the draws, in a process of their own."""
    data = tmp_path / "values.pt"
    torch.save([list(values.values()) for values in draws], data)
    subjects = [f"{tree}::{entry}" for tree, entry in (tree_of(task, tmp_path, b) for b in ("", *baselines))]
    subprocess.run([sys.executable, "-c", CALL, str(data), *subjects], check=True)
    return [[results(task, values, found) for values, found in calls] for calls in torch.load(data)]


def results(task: Task, values: list[Any], found: Any) -> Results:
    given = dict(zip((a.name for a in task.signature.args), values, strict=True))
    parts = () if found is None else found if isinstance(found, tuple) else (found,)
    fresh = [p for p in parts if not any(p is given[a.name] for a in task.signature.written)]
    outputs = zip((r.name for r in task.signature.outputs), fresh, strict=True)
    return {a.name: given[a.name] for a in task.signature.written} | dict(outputs)


def judged(task: Task, tmp_path: Path, *baselines: str) -> Mutated:
    """Every case: the entry and the baselines give what the oracle says, and zeros do not. Then the lint."""
    with kit.served(task) as judge:
        described = judge.describe()
        assert described.error == ""
        images, draws = [], []
        for layout in described.layouts:
            filled, bank = judge.fill(layout.case, *SEEDS)
            assert filled.error == ""
            images.append(bank[0])
            draws.append(kit.values_in(bank[0], layout))
        for subject, found in zip(("", *baselines), called(task, tmp_path, draws, *baselines), strict=True):
            for layout, image, right in zip(described.layouts, images, found, strict=True):
                answer = judge.ask(layout, image, right)
                assert (answer.error, answer.wrong) == ("", ""), (subject, layout.case)
                assert judge.ask(layout, image, {k: torch.zeros_like(v) for k, v in right.items()}).wrong
        said: Mutated = judge.asked(Mutate(), Mutated)[0]
    assert said.error == ""
    return said


def refused(origin: Any) -> KeepfastError:
    with pytest.raises((UsageError, TaskError)) as error:
        init(Path("tasks") / "no", origin)
    assert not Path("tasks/no").exists()
    return error.value


# --------------------------------------------------------------------------------------------- functions in a repository


def test_an_autograd_function_in_a_src_layout(repository: Path, tmp_path: Path) -> None:
    task, notes = made(PythonOrigin("src/glus/ops/glu.py:GluFunction", ("m=8 n=512",), odd=("m=3 n=33",)))
    assert task.signature.text == "GluFunction(Tensor a, Tensor b) -> Tensor"
    assert task.languages == ("triton", "torch")
    assert task.editable == ("src/glus/ops/glu.py",)
    assert task.build.readable == ("src/glus/__init__.py", "src/glus/ops/__init__.py", "src/glus/ops/utils.py")
    assert (task.oracle, task.goal.over) == ("frozen", "start")
    assert [c.use for c in task.cases] == ["both", "correct"]
    assert [n for n in notes if "a[m,n], b[m,n]" in n]
    assert len(judged(task, tmp_path).mutants) >= 8


def test_the_frozen_function_stays_what_it_was(repository: Path, tmp_path: Path) -> None:
    task, _ = made(PythonOrigin("src/glus/ops/glu.py:glu_forward", ("m=8 n=64",)))
    assert "glu_forward(a, b)[2]" in (Path(task.folder) / "adapter.py").read_text()  # the others are views of what it was given
    source = repository / "src/glus/ops/glu.py"
    source.write_text(source.read_text().replace("tl.sigmoid(x)", "tl.sigmoid(x) * 2"))
    with pytest.raises(AssertionError, match="got"):
        judged(task, tmp_path)


def test_helpers_autotuning_and_settings_that_are_no_arguments(repository: Path, tmp_path: Path) -> None:
    task, _ = made(PythonOrigin("flat/layers/unit.py:unit_forward", ("m=8 n=64", "m=3 n=33"), arguments=("x=f32[m,n]",)))
    assert task.signature.text == "unit_forward(Tensor x, float eps=1e-06) -> (Tensor, Tensor)"
    assert "flat/triton_utils.py" in task.build.readable
    judged(task, tmp_path)


def test_a_package_that_cannot_be_imported_is_left_out(repository: Path, tmp_path: Path) -> None:
    source = "gates/kernels/gate.py:gate_kernel"
    task, notes = made(PythonOrigin(source, ("b=2 l=4 n=48",)), "whole")
    assert "it imports a_large_package_that_nobody_has, which this Python does not have" in notes
    said = ("e=f32[b,l,n]", "g=f32[b,l,n]")  # the interpreter multiplies no bfloat16
    task, notes = made(PythonOrigin(source, ("b=2 l=4 n=48",), arguments=said, bare=True))
    assert task.build.readable == ("gates/kernels/utils.py",)
    assert not any("a_large" in n for n in notes)
    judged(task, tmp_path)


def test_a_file_that_is_no_module_and_runs_when_it_is_imported(repository: Path, tmp_path: Path) -> None:
    origin = PythonOrigin("tutorials/02-rows.py:rows", ("m=8 n=64", "m=3 n=33"), arguments=("x=f32[m,n]",))
    task, notes = made(origin)
    assert any("runs whenever the file is imported (`torch.manual_seed(0)`, and 1 more)" in n for n in notes)
    judged(task, tmp_path)


def test_a_reference_of_torch_and_arguments_that_are_written(repository: Path, tmp_path: Path) -> None:
    written = ("x=bf16[m,n]!", "residual=bf16[m,n]!", "weight=bf16[n]")
    task, _ = made(PythonOrigin("norm.py:add_rms_norm", ("m=8 n=64", "m=3 n=33"), arguments=written, reference="norm.py:plain"))
    assert task.signature.text == "add_rms_norm(Tensor(a!) x, Tensor(b!) residual, Tensor weight, float eps=1e-06) -> ()"
    assert task.oracle == "reference"
    assert task.argument("weight").role == "weight"
    (repository / "norm.py").write_text("raise SystemExit('a candidate was here')\n")  # the reference has a copy of its own
    with kit.served(task) as judge:
        assert judge.describe().error == ""
    shutil.copy(FOREIGN / "norm.py", repository / "norm.py")
    judged(task, tmp_path)


def test_what_a_signature_says(repository: Path) -> None:
    signature = "unit_forward(Tensor x, float eps=1e-5) -> (Tensor y, Tensor scale)"
    task, _ = made(PythonOrigin("flat/layers/unit.py:unit_forward", ("m=8 n=64",), signature=signature))
    assert task.signature.text == signature
    assert '"eps": 1e-05' in (Path(task.folder) / "reference.py").read_text()


@pytest.mark.parametrize(
    ("origin", "what"),
    [
        (PythonOrigin("gates/kernels/gate.py:_gate", ("n=8",)), "`_gate` is a kernel: name the function that launches it"),
        (PythonOrigin("src/glus/ops/glu.py:glu_kernel", ("n=8",)), "Functions that launch it: glu_forward"),
        (PythonOrigin("norm.py:add_rms_nrm", ("n=8",)), "Did you mean `add_rms_norm`?"),
        (PythonOrigin("norm.py:add_rms_norm", ("n=8",)), "returns no tensor of its own: say what it writes"),
        (PythonOrigin("norm.py:add_rms_norm", ("n=8",), arguments=("y=f32[n]",)), "has no parameter `y`"),
        (PythonOrigin("norm.py:add_rms_norm", ("n=8",), arguments=("x=f33[n]",)), "`f33` is no element type. Did you mean `f32`?"),
        (PythonOrigin("norm.py:add_rms_norm", ("n=8",), arguments=("x=f32[n-8]",)), "not a whole number above 0"),
        (PythonOrigin("norm.py:add_rms_norm", ("n=8",), arguments=("x=f32[n]<n",)), "only whole numbers are drawn below a bound"),
        (PythonOrigin("norm.py:plain", ("n=8",), odd=("m=8",)), "binds m; the cases bind n"),
        (PythonOrigin("norm.py:plain", ("n=8",), signature="plain(Tensor x, Tensor q) -> Tensor"), "no parameter `q`"),
        (PythonOrigin("kernelbench/36_Loss.py:Model.forward", ("n=8",)), "through an object"),
        (PythonOrigin("norm.py:plain", ("n=8",), reference="norm.py:no"), "no function `no` is defined"),
        (PythonOrigin("/etc/hostname:x", ("n=8",)), "in no git repository"),
    ],
)
def test_what_is_refused(repository: Path, origin: PythonOrigin, what: str) -> None:
    assert what in refused(origin).text()


# --------------------------------------------------------------------------------------------- operators


def test_an_operator_with_a_list(repository: Path, tmp_path: Path) -> None:
    said = ("normalized_shape=[n]", "weight=bf16[n]")
    task, notes = made(OpOrigin("torch.ops.aten.rms_norm", ("m=8 n=64",), odd=("m=3 n=33",), arguments=said))
    assert task.signature.text == "rms_norm(Tensor input, Tensor? weight=None, float? eps=None) -> Tensor"
    assert (task.languages, task.oracle, [b.name for b in task.baselines]) == (("torch",), "reference", ["op"])
    assert notes == ("drawn as bfloat16, as nothing was said of them (--arg): input[m,n]",)
    judged(task, tmp_path, "baselines/op.py")


def test_an_operator_without_a_float64_answer(repository: Path, tmp_path: Path) -> None:
    said = ("self=fp8[m,k]", "mat2=fp8[k,n]", "scale_a=f32[]", "scale_b=f32[]")
    task, notes = made(OpOrigin("aten::_scaled_mm", ("m=16 n=32 k=64",), arguments=said))
    assert task.oracle == "frozen"
    assert any("same as before, not proven right" in n for n in notes)
    with kit.served(task) as judge:
        assert judge.describe().error == ""


def test_an_operator_whose_decomposition_is_right(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = asked.ask

    def told(module: str, question: Any, kind: type[Any]) -> Any:
        return asked.Trial("decomposition", ran=True) if kind is asked.Trial else real(module, question, kind)

    monkeypatch.setattr(asked, "ask", told)
    task, _ = made(OpOrigin("torch.ops.aten.silu", ("m=8 n=64",)))
    with kit.served(task) as judge:
        layout = judge.layout("m8_n64")
        _, bank = judge.fill(layout.case, *SEEDS)
        x = kit.values_in(bank[0], layout)["self"]
        assert judge.ask(layout, bank[0], {"out": torch.nn.functional.silu(x)}).wrong == ""


def test_an_operator_in_place_and_a_skeleton(repository: Path, tmp_path: Path) -> None:
    task, notes = made(OpOrigin("torch.ops.aten.silu_", ("m=8 n=64", "m=3 n=33"), language="triton"))
    assert task.signature.text == "silu_(Tensor(a!) self) -> ()"
    assert task.languages == ("triton",)
    assert "kernel/kernel.py is a skeleton, and wrong until it computes what the operator does" in notes
    with kit.served(task) as judge:
        layout = judge.layout("m8_n64")
        _, bank = judge.fill(layout.case, *SEEDS)
        drawn = kit.values_in(bank[0], layout)
        skeleton, op = called(task, tmp_path, [drawn], "baselines/op.py")
        assert judge.ask(layout, bank[0], skeleton[0]).wrong
        assert judge.ask(layout, bank[0], op[0]).wrong == ""


@pytest.mark.parametrize(
    ("origin", "what"),
    [
        (OpOrigin("torch.ops.aten.rms_norm", ("m=8 n=8",)), "`normalized_shape` is a list (SymInt[]), which a signature cannot have"),
        (OpOrigin("torch.ops.aten.dropout", ("m=8 n=8",), arguments=("p=0.5", "train=true")), "draws random numbers"),
        (OpOrigin("torch.ops.nobody.thing", ("m=8 n=8",)), "--import MODULE"),
        (OpOrigin("torch.ops.aten.mm", ("m=8 n=4",)), "aten.mm.default refuses these arguments: mat1 and mat2 shapes"),
        (OpOrigin("torch.ops.aten.gelu", ("m=8 n=4",), overload="in"), "has no overload `in`"),
    ],
)
def test_operators_that_are_refused(repository: Path, origin: OpOrigin, what: str) -> None:
    assert what in refused(origin).text()


# --------------------------------------------------------------------------------------------- KernelBench


def test_a_problem_with_weights(repository: Path, tmp_path: Path) -> None:
    task, notes = made(KernelBenchOrigin("kernelbench/12_Linear_Norm_Swish.py"))
    weights = "Tensor bias, Tensor linear_weight, Tensor linear_bias, Tensor bn_weight, Tensor bn_bias"
    assert task.signature.text == f"Linear_Norm_Swish(Tensor x, {weights}) -> Tensor"
    assert task.axes == ("batch_size",)
    assert [(c.axis("batch_size"), c.use) for c in task.cases] == [(64, "both"), (7, "correct")]
    assert [a.role for a in task.arguments] == ["input", *["weight"] * 5, "input"]
    assert [b.name for b in task.baselines] == ["compile", "eager"]
    for word in (
        "from 0 to 1",
        "`bn.weight`, `bn.bias` the same every time",
        "launching takes",
        "on the CPU",
        "0.01 + 0.01",
        "`bn.running_mean`",
    ):
        assert any(word in note for note in notes), word
    judged(task, tmp_path, "baselines/eager.py", "baselines/compile.py")


def test_a_candidate_whose_weights_have_other_names(repository: Path, tmp_path: Path) -> None:
    origin = KernelBenchOrigin(
        "kernelbench/12_Linear_Norm_Swish.py", "kernelbench/12_new.py", cases=("batch_size=16,32",), odd=("batch_size=5",)
    )
    task, _ = made(origin)
    assert [(c.axis("batch_size"), c.use) for c in task.cases] == [(16, "both"), (32, "both"), (5, "correct")]
    assert task.languages == ("torch",)
    judged(task, tmp_path)


def test_a_problem_without_weights(repository: Path, tmp_path: Path) -> None:
    task, _ = made(KernelBenchOrigin("kernelbench/36_Loss.py"))
    assert task.signature.text == "Loss(Tensor predictions, Tensor labels, float scale) -> Tensor"
    assert task.axes == ("rows", "columns")
    assert task.argument("labels").role == "index"
    assert [dict(c.axes) for c in task.cases] == [{"rows": 128, "columns": 96}, {"rows": 7, "columns": 33}]
    judged(task, tmp_path)


def test_dropout_is_judged_in_eval_mode(repository: Path, tmp_path: Path) -> None:
    task, notes = made(KernelBenchOrigin("kernelbench/66_Dropout.py"))
    assert task.signature.text == "Dropout(Tensor x, Tensor linear_weight, Tensor linear_bias) -> (Tensor, Tensor)"
    assert any("eval mode" in note for note in notes)
    assert any("`mask`: kept inside the model" in note for note in notes)
    judged(task, tmp_path)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("x = 1\n", "defines no `Model`"),
        ("def f(:\n", "not Python"),
        (
            "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return torch.rand_like(x)\n"
            "def get_inputs():\n    return [torch.rand(3)]\ndef get_init_inputs():\n    return []\n",
            "forward() draws random numbers",
        ),
        (
            "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return {'y': x}\n"
            "def get_inputs():\n    return [torch.rand(3)]\ndef get_init_inputs():\n    return []\n",
            "forward() returns dict",
        ),
        (
            "import torch\nclass Model(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
            "        self.w = torch.rand(3)\n    def forward(self, x):\n        return x * self.w\n"
            "def get_inputs():\n    return [torch.rand(3)]\ndef get_init_inputs():\n    return []\n",
            "keeps random tensors that are neither parameters nor buffers",
        ),
    ],
)
def test_problems_that_are_refused(repository: Path, text: str, what: str) -> None:
    Path("p.py").write_text(text)
    assert what in refused(KernelBenchOrigin("p.py")).text()


def test_sizes_that_the_constructor_takes_stay(repository: Path) -> None:
    said = refused(KernelBenchOrigin("kernelbench/12_Linear_Norm_Swish.py", cases=("in_features=8",)))
    assert "`in_features` is no size that may vary" in said.text()
    assert "does not take: batch_size" in said.text()
