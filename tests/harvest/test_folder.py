"""The folder: written whole, read with suspicion. Contents decoded and described. No torch here."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from keepfast import dtypes
from keepfast.errors import UsageError
from keepfast.harvest import decode, folder, host, logs, profile, target
from keepfast.harvest.records import LEVELS, SCHEMA, Captured, Part, Profile
from tests.harvest.conftest import Program

ARRAYS = """
import lib, numpy as np
rng = np.random.default_rng(0)
for i in range(6):
    lib.f(rng.standard_normal((4 + i % 2, 8)).astype(np.float32), np.arange(4, dtype=np.int64))
lib.f(np.zeros((3, 4), np.float32).T, np.zeros(2, np.int64))
"""


@pytest.fixture
def made(program: Program) -> tuple[Path, Captured]:
    """A folder from a program on NumPy arrays, one of which it writes."""
    program.write("lib.py", "def f(x, at):\n    x[:, 0] = 7\n    return x, x.sum(axis=0), 5\n")
    program.write("main.py", ARRAYS)
    shown = program.python("lib:f", "main.py")
    assert shown.code == 0
    folder.write(program.folder / "d", shown.captured, shown.paths)
    return program.folder / "d", shown.captured


def test_what_is_written_is_what_is_read(made: tuple[Path, Captured]) -> None:
    place, captured = made
    assert folder.read(place) == captured
    assert sorted(c.seen for c in captured.kinds) == [1, 3, 3]
    strided = next(v for c in captured.kinds for v in c.values if v.shape == (4, 3))
    assert (strided.stride, strided.dtype, strided.device) == ((1, 4), "float32", "cpu")
    sample = captured.samples[0]
    assert [(p.name, p.dtype, p.whole) for p in sample.parts] == [("x", "float32", True), ("at", "int64", True)]
    assert sample.written == ("x",)
    assert [(v.kind, v.argument) for v in sample.returned] == [("numpy", "x"), ("numpy", ""), ("int", "")]
    data = folder.contents(place, sample)
    numbers = decode.numbers(folder.piece(data, sample.parts[0]), dtypes.by_name("float32"))
    assert 0.5 < numbers.std() < 1.5, "contents are from before the call"
    assert 7.0 not in numbers


def test_the_same_seed_keeps_the_same_calls(program: Program) -> None:
    program.write("main.py", "import lib, numpy as np\nfor i in range(60): lib.f(np.full(4, i, np.int64))\n")
    kept = [
        sorted(int(np.frombuffer(p.read_bytes(), np.int64)[0]) for p in program.python("lib:f", "main.py", seed=s).paths)
        for s in (1, 1, 2, 3)
    ]
    assert kept[0] == kept[1]
    assert len({tuple(k) for k in kept}) > 1
    assert len(kept[0]) == 4


def test_each_call_is_as_likely_to_be_kept(program: Program) -> None:
    """100 draws of 4 from 60 calls: each third of the calls is kept about as often."""
    program.write("main.py", """
        import sys, types
        sys.path.insert(0, sys.argv[1])
        from keepfast_hook.tally import Tally
        import tempfile, numpy as np, random
        class Draws(Tally):
            pass
        thirds = [0, 0, 0]
        for seed in range(100):
            tally = Draws({"seed": seed, "out": tempfile.mkdtemp(), "bytes": 1 << 20})
            tally._open()
            names = lambda args, kwargs: [("x", args[0])]
            tally._took = lambda start: None
            for i in range(60):
                tally.guarded(tally.before, names, (np.full(2, i),), {})
            for kept in tally.kept:
                value = np.fromfile(f"{tally.folder}/s{kept.number:06}", np.int64)[0]
                thirds[value // 20] += 1
        assert sum(thirds) == 400, thirds
        assert min(thirds) > 95, thirds   # 133 expected, standard deviation 9.4; the seeds are the same every time
        """)  # fmt: skip
    assert program.python("none:f", "main.py", str(host.INJECTED)).code == 0


def test_contents_keep_to_their_bytes(program: Program) -> None:
    program.write(
        "main.py", "import lib, numpy as np\nfor i in range(40): lib.f(np.zeros((i % 5 + 1, 100000)))\nlib.f(np.zeros(3 << 20))\n"
    )
    shown = program.python("lib:f", "main.py", bytes_of=4)
    assert sum(s.nbytes for s in shown.captured.samples) <= 4 << 20
    kept = {p.shape for s in shown.captured.samples for p in s.parts}
    assert (3 << 20,) in kept
    excerpt = next(p for s in shown.captured.samples for p in s.parts if p.shape == (3 << 20,))
    assert not excerpt.whole
    assert excerpt.nbytes <= 8 << 16
    none = program.python("lib:f", "main.py", samples=0)
    assert (none.captured.samples, none.captured.profiles) == ((), ())


# --------------------------------------------------------------------------------------------- a hostile folder


def damaged(place: Path, change: Any) -> None:
    data = json.loads((place / "captured.json").read_text())
    change(data)
    (place / "captured.json").write_text(json.dumps(data))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda d: d.update(schema="keepfast.captured/9"), "its schema is"),
        (lambda d: d["samples"][0].update(file="../../etc/passwd"), "a sample is called"),
        (lambda d: d["samples"][0].update(call=99), "belongs to no call"),
        (lambda d: d["samples"][0].update(call=-1), "belongs to no call"),
        (lambda d: d["samples"][0]["parts"][0].update(at=1 << 40), "a part that lies outside"),
        (lambda d: d["samples"][0]["parts"][0].update(nbytes=-5), "a part that lies outside"),
        (lambda d: d["samples"][0]["parts"][0].update(shape=[-3, 4]), "a part that lies outside"),
        (lambda d: d["kinds"][0]["values"][0].update(shape=[1 << 60, 2]), "a size that cannot be"),
        (lambda d: d["kinds"][0]["values"][0].update(stride=[]), "a size that cannot be"),
        (lambda d: d["kinds"][0].update(seen=0), "never seen"),
        (lambda d: d.update(kinds=5), "Expected `array`"),
        (lambda d: d.update(kinds=d["kinds"] * 2000), "too many"),
        (lambda d: d.pop("target"), "missing required field"),
    ],
)
def test_a_folder_that_lies_is_refused_in_a_sentence(made: tuple[Path, Captured], change: Any, what: str) -> None:
    place, _ = made
    damaged(place, change)
    with pytest.raises(UsageError, match=what):
        folder.read(place)


@pytest.mark.parametrize("text", ["", "{", "[" * 5000, "\xff\xfe", '{"schema": 1e999}', "null"])
def test_what_is_no_json_is_refused(made: tuple[Path, Captured], text: str) -> None:
    place, _ = made
    (place / "captured.json").write_text(text, encoding="latin-1")
    with pytest.raises(UsageError):
        folder.read(place)


def test_contents_that_were_changed_cut_or_replaced_are_refused(made: tuple[Path, Captured], tmp_path: Path) -> None:
    place, captured = made
    one, two, three = captured.samples[:3]
    path = place / "samples" / one.file
    path.write_bytes(b"\1" + path.read_bytes()[1:])
    (place / "samples" / two.file).unlink()
    os.mkfifo(place / "samples" / two.file)
    (place / "samples" / three.file).unlink()
    (place / "samples" / three.file).symlink_to(tmp_path / "lib.py")
    for sample in (one, two, three):
        with pytest.raises(UsageError, match=f"samples/{sample.file}"):
            folder.contents(place, sample)
    for name in ("nowhere", "d/samples"):
        with pytest.raises(UsageError, match=r"no captured\.json"):
            folder.read(tmp_path / name)


@pytest.mark.parametrize("spoil", ["log", "counts", "both"])
def test_a_process_that_wrote_nonsense_is_left_out_and_named(program: Program, spoil: str) -> None:
    program.write("main.py", "import lib, os\nlib.f(1)\nif os.fork() == 0:\n    lib.f(2)\n    os._exit(0)\nos.wait()\n")
    program.python("lib:f", "main.py")
    out = program.folder / "work1" / "out"
    first = sorted(out.glob("p*"))[1]
    for name in ("log", "counts") if spoil == "both" else (spoil,):
        (first / name).write_bytes(b'{"slot": "x"}\n\xff\n' if name == "log" else b"short")
    (out / "p9999").mkdir()
    left = logs.read(out)
    assert sum(left.problems.values()) == 2
    assert len(left.kinds) == 1


def test_half_a_line_at_the_end_of_a_log_is_no_line(program: Program) -> None:
    program.write("main.py", "import lib\nlib.f(1)\n")
    program.python("lib:f", "main.py")
    log = next((program.folder / "work1" / "out").glob("p*/log"))
    log.write_bytes(log.read_bytes() + b'{"slot": 77, "val')
    assert len(logs.read(program.folder / "work1" / "out").kinds) == 1


# --------------------------------------------------------------------------------------------- numbers


@pytest.mark.parametrize(
    ("name", "codes", "values"),
    [
        ("bfloat16", [0x80, 0x3F, 0x00, 0xC0], [1.0, -2.0]),
        ("float8_e4m3fn", [0x38, 0x7E, 0x01, 0xFF, 0x80], [1.0, 448.0, 2.0**-9, math.nan, -0.0]),
        ("float8_e5m2", [0x3C, 0x7B, 0x01, 0xFC, 0x7F], [1.0, 57344.0, 2.0**-16, -math.inf, math.nan]),
        ("float8_e8m0", [127, 128, 0, 255], [1.0, 2.0, 2.0**-127, math.nan]),
        ("float4_e2m1", [0x10, 0xF7], [0.0, 0.5, 6.0, -6.0]),
        ("bool", [0, 1], [0.0, 1.0]),
    ],
)
def test_elements_of_every_width(name: str, codes: list[int], values: list[float]) -> None:
    found = decode.numbers(bytes(codes), dtypes.by_name(name))
    assert np.array_equal(found, values, equal_nan=True)


def described(array: Any, name: str = "float32", shape: tuple[int, ...] = ()) -> Profile:
    part = Part("x", name, shape or array.shape, (1,) * len(shape or array.shape), 0, array.nbytes)
    found = profile.of_argument("x", [(part, array.tobytes())])
    assert found is not None
    return found


def test_a_profile_of_floating_numbers() -> None:
    rng = np.random.default_rng(1)
    values = rng.standard_normal(100_000).astype(np.float32)
    values[:1000] = 0
    values[1000:1010], values[1010:1020], values[1020], values[1021] = 300, -np.inf, np.nan, np.inf
    found = described(values)
    assert found.zeros == pytest.approx(0.01)
    assert (found.high, found.nan, found.negative_infinity, found.positive_infinity) == (300, 1e-5, 1e-4, 1e-5)
    assert found.outliers == pytest.approx(1e-4)
    assert len(found.quantiles) == len(LEVELS)
    assert found.quantiles[LEVELS.index(0.5)] == pytest.approx(0, abs=0.02)
    assert described(np.full(5, np.nan, np.float32)).nan == 1


def test_a_profile_of_whole_numbers() -> None:
    rows = np.stack([np.sort(np.random.default_rng(i).permutation(64)[:8]) for i in range(20)])
    found = described(rows.astype(np.int64), "int64")
    assert (found.sorted, found.unique) == (1.0, 1.0)
    assert found.low >= 0
    assert found.high < 64
    skewed = np.r_[np.zeros(900, np.int32), np.arange(100, dtype=np.int32)]
    found = described(skewed, "int32")
    assert (found.top, found.distinct, found.unique) == (0.901, 100, 0.0)


def test_a_type_that_keepfast_has_not_is_passed_over() -> None:
    assert profile.of_argument("x", [(Part("x", "complex64", (1,), (1,), 0, 8), bytes(8))]) is None


# --------------------------------------------------------------------------------------------- targets


@pytest.mark.parametrize("text", ["", "f", "a:b:c", "a b:f", "a:", ":f", "a:f.g.h", "nothing.py:f", "torch.ops.x", "a:1f"])
def test_what_is_no_target(text: str) -> None:
    with pytest.raises(UsageError):
        target.parse(text)


def test_targets(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("")
    assert target.parse("torch.ops._C.rms_norm.default").text == "torch.ops._C.rms_norm"
    assert target.parse("a.b:C.f") == target.Target("function", "C.f", module="a.b")
    assert target.parse(f"{tmp_path}/a.py:f").path == str(tmp_path / "a.py")


def test_the_hook_and_the_reader_agree_about_the_counts() -> None:
    text = (host.INJECTED / "keepfast_hook" / "tally.py").read_text()
    assert f'HEADER = struct.Struct("{logs.HEADER.format}")' in text
    assert f'SLOT = struct.Struct("{logs.SLOT.format}")' in text
    assert f"SLOTS = {logs.SLOTS}" in text
    assert SCHEMA in Path(folder.__file__).with_name("records.py").read_text()


def test_the_hook_imports_the_standard_library_alone() -> None:
    import ast
    import sys

    for path in host.INJECTED.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            assert all(n.partition(".")[0] in sys.stdlib_module_names for n in names), path
