"""The Python runner: baselines behind the same messages as C."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from keepfast import wire
from keepfast.judge.channel import Call, Failure, python_runner
from keepfast.model import Reason
from keepfast.walls.base import Walls

from ..judge.channel.kit import SIZE, BareWalls, Memory, Rig, rig

SLOW_S = 60.0
LAYOUT: wire.Layout = (
    wire.Tensor("x", "float32", (10, 100), (400, 4), 0, 4000),
    wire.Tensor("y", "float32", (10, 100), (400, 4), 0, 4000),
)
DOUBLE = "import numpy as np\ndef kernel(x, y):\n    np.multiply(x, 2, out=y)\n"


@pytest.fixture(scope="module", params=["walls", "bare"])
def walls(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> object:
    return Walls.detect() if request.param == "walls" else BareWalls(tmp_path_factory.mktemp("bare"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    for part in (tmp_path, *tmp_path.parents[:2]):
        part.chmod(0o755)
    return tmp_path / "baseline.py"


def once(walls: object, path: Path, source: str, layout: wire.Layout = LAYOUT) -> Call | Failure:
    path.write_text(source)
    with rig(walls, python_runner(str(path)), layout) as made:
        return made.runner.load(SLOW_S) or made.runner.call(0, 3, SLOW_S)


def test_it_computes(walls: object, path: Path) -> None:
    path.write_text(DOUBLE)
    with rig(walls, python_runner(str(path)), LAYOUT) as made:
        assert made.runner.load(SLOW_S) is None
        assert isinstance(made.runner.call(0, 3, SLOW_S), Call)
        assert made.state() == "T"
        assert (made.y.floats[:1000] == 2 * made.x.floats[:1000]).all()
        made.x.floats[:] = 7
        assert isinstance(made.runner.call(1, 1, SLOW_S), Call)
        assert (made.y.floats[:1000] == 14).all()
        assert (made.y.floats[1000:] == 0).all()


@pytest.mark.parametrize(
    ("source", "reason", "said"),
    [
        ("def kernel(x, y):\n    x[0, 0] = 1\n", Reason.CRASH, "assignment destination is read-only"),
        ("def kernel(x, y):\n    raise KeyError('nothing')\n", Reason.CRASH, "KeyError: 'nothing'"),
        ("def kernel(x, y):\n    return 3\n", Reason.RETURN_CODE, "returned 3"),
        ("def kernel(x, y):\n    return 'text'\n", Reason.CRASH, "ValueError: invalid literal"),
        ("import no_such_thing\n", Reason.CRASH, "No module named 'no_such_thing'"),
        ("def other(x, y):\n    pass\n", Reason.CRASH, "has no attribute 'kernel'"),
        ("kernel = 3\n", Reason.CRASH, "`kernel` is not a function"),
        ("import sys\ndef kernel(x, y):\n    sys.exit(0)\n", Reason.CRASH, "exited (code 0)"),
    ],
)
def test_failures(walls: object, path: Path, source: str, reason: Reason, said: str) -> None:
    found = once(walls, path, source)
    assert isinstance(found, Failure)
    assert found.reason is reason
    assert said in found.detail


def test_hang(walls: object, path: Path) -> None:
    path.write_text("import time\ndef kernel(x, y):\n    time.sleep(60)\n")
    with rig(walls, python_runner(str(path)), LAYOUT) as made:
        made.runner.load(SLOW_S)
        found = made.runner.call(0, 1, 0.3)
        assert isinstance(found, Failure)
        assert found.reason is Reason.HANG


def with_words(made: Rig, kinds: list[int], words: list[float | None], layout: wire.Layout) -> Call | Failure:
    fd = wire.table(kinds, [words])
    made.runner.table(fd, layout)
    os.close(fd)
    return made.runner.load(SLOW_S) or made.runner.call(0, 1, SLOW_S)


def test_scalars_optionals_and_text(walls: object, path: Path) -> None:
    path.write_text(
        "def kernel(a, b, c, d, e, f, g, y):\n"
        "    assert (a, b, c, d, e, f, g) == (-3, 0.5, True, 'softmax', None, 2.5, None), (a, b, c, d, e, f, g)\n"
        "    y[...] = 1\n"
    )
    kinds = ["int", "float", "bool", "str", "int", "float"]
    names = "abcdef"
    layout: wire.Layout = (
        *(wire.Scalar(name, kind) for name, kind in zip(names, kinds, strict=True)),
        wire.Tensor("g", "float32", (3,), (4,), 0, 12),
        wire.Tensor("y", "float64", (2, 2), (32, 8), 0, 48),
    )
    with rig(walls, python_runner(str(path)), LAYOUT) as made:
        made.x.map[16:24] = b"softmax\0"
        made.x.map[24:32] = np.float64(2.5).tobytes()
        x, y = 1, 2
        words = [-3, 0.5, True, 16, None, 24, None, 8, 77, None]
        found = with_words(made, [0, 0, 0, x, x, x, x, y, 0, 0], words, layout)
        assert isinstance(found, Call), found
        written = np.frombuffer(made.y.map, np.float64)[:8].tolist()
        assert written == [0, 1, 1, 0, 0, 1, 1, 0]


def test_a_tensor_outside_its_buffer(walls: object, path: Path) -> None:
    path.write_text(DOUBLE)
    with rig(walls, python_runner(str(path)), LAYOUT) as made:
        made.runner.load(SLOW_S)
        found = with_words(made, [1, 2], [SIZE - 3999, 0], LAYOUT)
        assert isinstance(found, Failure)
        assert "`x` does not lie inside its buffer" in found.detail


def test_nothing_is_written_beside_the_baseline(path: Path) -> None:
    assert isinstance(once(Walls.detect(), path, DOUBLE), Call)
    assert os.listdir(path.parent) == ["baseline.py"]


def test_memory_of_the_test_is_sealed() -> None:
    memory = Memory(writable=False)
    wire.check(memory.fd, SIZE, read_only=True)
    memory.close()
