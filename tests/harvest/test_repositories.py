"""What was in the way in public repositories, each in a few lines of the same shape: read as text, without torch."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path

import pytest

from keepfast.task.load import load
from keepfast.task.onboard_python import PythonOrigin
from keepfast.task.onboard_torch import init
from keepfast.task.paths import expand


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def text(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def test_a_package_left_out_is_still_known_to_be_installed(repository: Path) -> None:
    """As in unsloth: a module of the package asks importlib whether its own package is there, which fails without a spec."""
    text(repository / "big" / "__init__.py", "import a_thing_that_is_not_here\n")
    text(repository / "big" / "inner" / "__init__.py", "")
    text(
        repository / "big" / "inner" / "k.py",
        "import importlib.util\nHAS = importlib.util.find_spec('big') is not None\n\ndef f(x):\n    return x + 1\n",
    )
    init(Path("tasks/t"), PythonOrigin("big/inner/k.py:f", ("n=8",), bare=True))
    adapter = Path("tasks/t/adapter.py").read_text()
    head = (
        adapter.split("@torch.no_grad()")[0].replace("import torch\n", "").replace("__file__", repr(str(repository / "tasks/t/adapter.py")))
    )
    done = subprocess.run([sys.executable, "-c", head + "\nassert f(3) == 4"], check=False, capture_output=True, text=True, cwd=repository)
    assert done.returncode == 0, done.stderr


def test_data_that_a_module_reads_when_it_is_imported(repository: Path) -> None:
    """As in gemlite: a folder of configurations beside the file, named in its text."""
    text(repository / "lib" / "__init__.py", "")
    core = "import os\nHERE = os.path.join(os.path.dirname(__file__), 'configs/')\nNAMES = os.listdir(HERE)\n"
    text(repository / "lib" / "core.py", f"{core}OTHER = 'more'\nLINE = 'notes.txt'\n")
    text(repository / "lib" / "op.py", "from lib.core import NAMES\n\ndef f(x):\n    return x + 1\n")
    text(repository / "lib" / "configs" / "a.json", "{}")
    text(repository / "lib" / "more" / "code.py", "")
    text(repository / "lib" / "notes.txt", "one")
    init(Path("tasks/t"), PythonOrigin("lib/op.py:f", ("n=8",)))
    readable = load(Path("tasks/t")).build.readable
    assert readable == ("lib/__init__.py", "lib/core.py", "lib/configs/**", "lib/notes.txt")
    assert "lib/configs/a.json" in expand(repository, readable)


def test_inputs_need_nothing_of_the_function(repository: Path) -> None:
    """As in FlagGems: importing the function wants a GPU, drawing its inputs does not."""
    text(repository / "op.py", "raise RuntimeError('no device was found')\n\ndef f(x):\n    return x + 1\n")
    init(Path("tasks/t"), PythonOrigin("op.py:f", ("n=8",)))
    names: dict[str, object] = {"__file__": str(repository / "tasks/t/reference.py")}
    source = Path("tasks/t/reference.py").read_text()
    assert source.index("def reference(x)") < source.index("from op import f")
    stand_in = types.ModuleType("torch")
    stand_in.no_grad = lambda: lambda function: function  # type: ignore[attr-defined]
    before, sys.modules["torch"] = sys.modules.get("torch"), stand_in
    paths, finders = list(sys.path), list(sys.meta_path)
    try:
        exec(compile(source, "reference.py", "exec"), names)
    finally:
        sys.path[:], sys.meta_path[:] = paths, finders
        if before is None:
            del sys.modules["torch"]
        else:
            sys.modules["torch"] = before
    assert callable(names["inputs"])


def test_a_type_of_torch_as_an_argument(repository: Path) -> None:
    """As in gemlite: `w_dtype` has no default."""
    head = "def quantise(x: torch.Tensor, w_dtype: torch.dtype, wide: bool = True) -> torch.Tensor:"
    text(repository / "q.py", f"import torch\n\n{head}\n    return x.to(w_dtype)\n")
    init(Path("tasks/t"), PythonOrigin("q.py:quantise", ("n=8",), arguments=("w_dtype=torch.float8_e4m3fn",)))
    assert load(Path("tasks/t")).signature.text == "quantise(Tensor x, bool wide=True) -> Tensor"
    assert "quantise(x, torch.float8_e4m3fn, wide)" in Path("tasks/t/adapter.py").read_text()
