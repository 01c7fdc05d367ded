"""A task from a captured folder: its texts, without torch. What is run of them is in test_torch.py."""

from __future__ import annotations

import tomllib
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from keepfast.errors import UsageError
from keepfast.harvest import folder, profile
from keepfast.harvest.records import SCHEMA, Call, Captured, Part, Sample, Target, Value
from keepfast.model import Task
from keepfast.task.load import load
from keepfast.task.onboard_captured import CapturedOrigin
from keepfast.task.onboard_python import PythonOrigin
from keepfast.task.onboard_torch import init

SOURCE = """
import torch


def mix(x, table, index, scale, size, mode="plain", *, out=None, dtype=None):
    found = table[index] * scale + x
    return found, x, size


def copy(x, y):
    y.copy_(x)


class Rows:
    def go(self, x):
        return x
"""


def tensor(name: str, *shape: int, dtype: str = "bfloat16", stride: tuple[int, ...] = ()) -> Value:
    steps = [1]
    for n in reversed(shape[1:]):
        steps.insert(0, steps[0] * n)
    return Value("torch", name, shape, stride or tuple(steps[: len(shape)]), dtype, "cuda")


def number(name: str, value: object) -> Value:
    return Value(type(value).__name__, name, text=repr(value) if not isinstance(value, str) else value)


class Folder:
    """Builds what `keepfast capture` writes."""

    def __init__(self, root: Path) -> None:
        self.place, self.path = root / "captured" / "mix", root / "ops.py"
        self.kinds: list[Call] = []
        self.samples: list[tuple[Sample, bytes]] = []
        self.said: dict[str, Any] = {}

    def call(self, count: int, *values: Value) -> int:
        self.kinds.append(Call(values, count, count))
        return len(self.kinds) - 1

    def sample(self, call: int, arrays: dict[str, Any], **after: Any) -> None:
        values = {v.name: v for v in self.kinds[call].values}
        parts, data = [], b""
        for name, array in arrays.items():
            parts.append(Part(name, values[name].dtype, values[name].shape, values[name].stride, len(data), array.nbytes))
            data += array.tobytes()
        file = f"{len(self.samples):04}.bin"
        self.samples.append((Sample(file, sha256(data).hexdigest(), len(data), call, tuple(parts), seen_after=bool(after), **after), data))

    def write(self, target: Target | None = None) -> str:
        (self.place / "samples").mkdir(parents=True, exist_ok=True)
        named: dict[str, list[tuple[Part, bytes]]] = {}
        for sample, data in self.samples:
            (self.place / "samples" / sample.file).write_bytes(data)
            for part in sample.parts:
                named.setdefault(part.name, []).append((part, folder.piece(data, part)))
        captured = Captured(
            schema=SCHEMA, target=target or Target("function", "mix", module="ops"), command=("x",), exit_code=0, processes=1,
            calls=sum(c.seen for c in self.kinds), looked=1, in_graphs=0, traced=0, unlisted=0, errors=0, file=str(self.path), line=5,
            operator="", kinds=tuple(self.kinds), samples=tuple(s for s, _ in self.samples),
            profiles=tuple(p for n, f in named.items() if (p := profile.of_argument(n, f)) is not None), versions={},
        )  # fmt: skip
        folder.write(self.place, captured, [self.place / "samples" / s.file for s, _ in self.samples])
        return str(self.place)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    (tmp_path / ".git").mkdir()
    (tmp_path / "ops.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    return Folder(tmp_path)


def onboarded(made: Folder, name: str = "t", target: Target | None = None, **said: Any) -> tuple[Task, tuple[str, ...]]:
    mine = {key: said.pop(key) for key in ("group", "contents") if key in said}
    written = init(Path("tasks") / name, CapturedOrigin(made.write(target), PythonOrigin(said.pop("source", ""), (), **said), **mine))
    return load(Path("tasks") / name), written.notes


def mixes(made: Folder, sizes: tuple[tuple[int, int, int], ...]) -> None:
    """(calls, rows, table rows) each."""
    for count, m, rows in sizes:
        made.call(
            count, tensor("x", m, 64), tensor("table", rows, 64), tensor("index", m, dtype="int64"), number("scale", 0.5),
            number("size", m), number("mode", "plain"), Value("none", "out"), Value("other", "dtype", text="torch.float16"),
        )  # fmt: skip


def test_cases_arguments_and_roles(made: Folder) -> None:
    mixes(made, ((900, 16, 100), (90, 128, 100), (9, 7, 100), (1, 5, 300)))
    rng = np.random.default_rng(0)
    for call in range(4):
        m = made.kinds[call].values[0].shape[0]
        rows = made.kinds[call].values[1].shape[0]
        arrays = {
            "x": np.zeros((m, 64), np.uint16),
            "table": rng.integers(0, 0x4000, (rows, 64), np.uint16),
            "index": rng.integers(0, rows, m),
        }
        back = (Value("torch", shape=(m, 64), stride=(64, 1)), Value("torch", argument="x"), Value("int", text="5"))
        made.sample(call, arrays, returned=back)
    task, notes = onboarded(made)
    assert task.signature.text == 'mix(Tensor x, Tensor table, Tensor index, float scale=0.5, str mode="plain") -> Tensor'
    assert task.axes == ("size", "m")
    assert [(c.axis("size"), c.axis("m"), c.use) for c in task.cases][:2] == [(16, 100, "both"), (128, 100, "both")]
    assert {c.axis("m") for c in task.cases} == {100, 300}, "the largest is in, however rare"
    assert sum(task.weights()) == pytest.approx(1)
    assert task.weights()[0] == pytest.approx(0.909), "the rare size next to it counts for it"
    assert task.argument("index").role == "index"
    assert task.oracle == "frozen"
    adapter = (Path(task.folder) / "adapter.py").read_text()
    call = "mix(x, table, index, scale, x.shape[0], mode, out=None, dtype=torch.float16)[0]"
    assert f"return {call}" in adapter, "x and a number came back as well"
    text = (Path(task.folder) / "reference.py").read_text()
    assert "torch.randint(0, case.m, (case.size,), dtype=torch.int64, **here)" in text
    assert any("`x` was 0 throughout" in note for note in notes)


def test_one_form_is_a_task_and_the_others_are_named(made: Folder) -> None:
    made.call(10, tensor("x", 4, 8), tensor("y", 4, 8))
    made.call(10, tensor("x", 8, 8), tensor("y", 8, 8))
    made.call(5, tensor("x", 4, 8, dtype="float32"), tensor("y", 4, 8, dtype="float32"))
    made.call(3, tensor("x", 2, 4, 8), tensor("y", 2, 4, 8))
    made.call(2, tensor("x", 0, 8), tensor("y", 0, 8))  # nothing to do
    made.sample(0, {"x": np.ones((4, 8), np.uint16), "y": np.ones((4, 8), np.uint16)}, written=("y",), returned=(Value("none"),))
    target = Target("file", "copy", path=str(made.path))
    task, notes = onboarded(made, "first", target)
    assert task.signature.text == "copy(Tensor x, Tensor(a!) y) -> ()"
    assert notes[0].startswith("67% of the calls have this form")
    assert "2: x=float32, 2 dimensions" in notes[0]
    second, _ = onboarded(made, "second", target, group=2, arguments=("y=f32[m,n]!",))
    assert [c.name for c in second.cases] == ["m4_n8"]
    with pytest.raises(UsageError, match="there are 3 forms"):
        onboarded(made, "fourth", target, group=4)


def test_a_number_that_varies_and_no_tensor_shows(made: Folder) -> None:
    for count, k in ((5, 2), (7, 8)):
        made.call(
            count, tensor("x", 16, 64), tensor("table", 16, 64), tensor("index", 16, dtype="int64"), number("scale", 1.0), number("size", k)
        )
    task, _ = onboarded(made)
    assert task.signature.text == 'mix(Tensor x, Tensor table, Tensor index, float scale=1.0, int size=2, str mode="plain") -> Tensor'
    assert task.axes == ("size_value",)
    assert '"size": case.size_value,' in (Path(task.folder) / "reference.py").read_text()


def test_memory_that_nobody_had_written_is_not_imitated(made: Folder) -> None:
    made.call(3, tensor("x", 4, 8, dtype="float32"), tensor("y", 4, 8, dtype="float32"))
    left = np.full((4, 8), 3e37, np.float32)
    made.sample(0, {"x": np.ones((4, 8), np.float32), "y": left}, written=("y",))
    task, notes = onboarded(made, "t", Target("file", "copy", path=str(made.path)))
    assert '"y": torch.randn(' in (Path(task.folder) / "reference.py").read_text()
    assert any("`y` held what was left in memory" in note for note in notes)


def test_contents_lie_in_the_task_and_are_sealed(made: Folder) -> None:
    made.call(3, tensor("x", 4, 8), tensor("y", 4, 8))
    made.call(1, tensor("x", 6, 8), tensor("y", 6, 8, stride=(16, 1)))
    made.sample(0, {"x": np.ones((4, 8), np.uint16), "y": np.ones((4, 8), np.uint16)}, written=("y",))
    target = Target("file", "copy", path=str(made.path))
    task, notes = onboarded(made, "t", target, contents=True)
    index = Path(task.folder) / "captured" / "index.json"
    assert sha256(index.read_bytes()).hexdigest() in (Path(task.folder) / "reference.py").read_text()
    assert sorted(p.name for p in index.parent.iterdir()) == ["0000.bin", "index.json"]
    assert [task.argument(n).refresh for n in ("x", "y")] == ["whole", "whole"]
    assert any("no captured contents for m6" in note for note in notes)
    assert any("y were not contiguous" in note for note in notes)
    (made.place / "samples" / "0000.bin").write_bytes(bytes(128))
    with pytest.raises(UsageError, match="is not what was captured"):
        init(Path("tasks/no"), CapturedOrigin(str(made.place), PythonOrigin("", ()), contents=True))
    assert not Path("tasks/no").exists()


@pytest.mark.parametrize(
    ("values", "said", "what"),
    [
        ((Value("numpy", "x", (4,), (1,), "float32", "cpu"),), {}, "no call that a task could be made of"),
        ((number("x", 3),), {}, "no call that a task could be made of"),
        ((tensor("x", 4), Value("list", "y", items=(tensor("", 4),))), {}, "`y` is a list of tensors"),
        ((tensor("x", 4), tensor("z", 4)), {}, "has no parameter `z`"),
        ((tensor("x", 4), tensor("y", 4)), {"contents": True}, "no whole contents"),
        ((tensor("x", 4), tensor("y", 4)), {"target": Target("function", "Rows.go", module="ops")}, "called through an object"),
        ((tensor("x", 4), tensor("y", 4)), {"target": Target("file", "copy", path="/nowhere.py")}, "--from FILE.py:FUNCTION"),
    ],
)
def test_what_is_refused(made: Folder, values: tuple[Value, ...], said: dict[str, Any], what: str) -> None:
    made.call(2, *values)
    with pytest.raises(UsageError, match=what):
        onboarded(made, **({"target": Target("file", "copy", path=str(made.path))} | said))
    assert not Path("tasks").exists()


def test_the_command(made: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    from keepfast.cli.main import main

    made.call(3, tensor("x", 4, 8), tensor("y", 4, 8))
    made.sample(0, {"x": np.ones((4, 8), np.uint16), "y": np.ones((4, 8), np.uint16)}, written=("y",))
    place = made.write(Target("function", "copy", module="ops"))
    for words, code in (
        (("init", "t", "--captured", place, "--odd", "m=3 n=5"), 0),
        (("init", "u", "--captured", place, "--case", "m=3"), 2),
        (("init", "u", "--captured", place, "--op", "aten.gelu"), 2),
        (("init", "u", "--contents", "--op", "aten.gelu"), 2),
    ):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert int(ended.value.code or 0) == code, words
    assert "same as before, not proven right" in capsys.readouterr().out
    data = tomllib.loads(Path("tasks/t/task.toml").read_text())
    assert [(c["m"], c["n"], c.get("use")) for c in data["case"]] == [(4, 8, None), (3, 5, "correct")]
