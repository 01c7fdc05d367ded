"""What a candidate's exceptions mean, and which line they name."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from keepfast.capture import load
from keepfast.capture.refusals import CALLING, CAPTURING, DETAIL, LOADING, Guard, Refused, clean
from keepfast.gpu.messages import CAPTURE_ERRORS


def quiet() -> str:
    return ""


def raised(tree: Path, source: str, phase: str = CALLING, memory: str = "") -> Refused:
    """What becomes of what `kernel()` in `source` raises."""
    load.write(tree, [("kernel/kernel.py", source.encode())])
    with pytest.raises(Refused) as caught, Guard(tree, phase, lambda: memory):
        load.python(tree, "kernel/kernel.py", "kernel")()
    assert caught.value.error in CAPTURE_ERRORS
    return caught.value


@pytest.mark.parametrize(
    ("text", "phase", "error"),
    [
        ("CUDA error: operation not permitted when stream is capturing\nCompile with `TORCH_USE_CUDA_DSA`", CAPTURING, "graph"),
        ("CUDA error: operation would make the legacy stream depend on a capturing blocking stream", CAPTURING, "graph"),
        ("Cannot copy between CPU and CUDA tensors during CUDA graph capture unless the CPU tensor is pinned.", CAPTURING, "graph"),
        ("Triton Error [CUDA]: operation failed due to a previous error during capture", CAPTURING, "graph"),
        ("CUDA error: invalid argument", CAPTURING, "graph"),
        ("CUDA error: invalid argument", CALLING, "raised"),
        ("Offset increment outside graph capture encountered unexpectedly.", CAPTURING, "graph"),
        ("CUDA error: an illegal memory access was encountered", CALLING, "fault"),
        ("Triton Error [CUDA]: an illegal memory access was encountered", CAPTURING, "fault"),
        ("CUDA error: device-side assert triggered", CALLING, "fault"),
        ("CUDA error: out of memory", CALLING, "memory"),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", CALLING, "memory"),
        ("PassManager::run failed", CALLING, "compile"),
        ("nvrtc: error: invalid value for --gpu-architecture", CALLING, "compile"),
        ("Error building extension 'norm'", LOADING, "compile"),
        ("shapes do not match", CALLING, "raised"),
        ("shapes do not match", CAPTURING, "raised"),
        ("shapes do not match", LOADING, "import"),
        ("this captures the essence", CAPTURING, "raised"),
    ],
)
def test_texts_of_runtime_errors(tmp_path: Path, text: str, phase: str, error: str) -> None:
    found = raised(tmp_path, f"def kernel():\n    raise RuntimeError({text!r})\n", phase)
    assert found.error == error
    assert found.detail.startswith("kernel/kernel.py:2: `raise RuntimeError(")
    assert "TORCH_USE_CUDA_DSA`" not in found.detail.split("RuntimeError: ")[-1], "advice about CUDA is not for here"


def test_the_innermost_line_of_the_tree_is_named(tmp_path: Path) -> None:
    load.write(tmp_path, [("kernel/helper.py", b"import json\n\n\ndef read(x):\n    return json.loads(x)\n")])
    load.search(tmp_path, "kernel/kernel.py", ())
    with _restored():
        found = raised(tmp_path, "import helper\n\ndef kernel():\n    return helper.read('{')\n")
    assert found.error == "raised"
    assert found.detail.startswith("kernel/helper.py:5: `return json.loads(x)`: JSONDecodeError: ")


@contextlib.contextmanager
def _restored() -> Iterator[None]:
    import sys

    before = sys.path[:]
    yield
    sys.path[:] = before
    sys.modules.pop("helper", None)


@pytest.mark.parametrize(
    ("source", "phase", "error", "detail"),
    [
        ("def kernel(:\n    pass\n", LOADING, "import", "kernel/kernel.py:1: `def kernel(:`: SyntaxError"),
        ("import no_such_thing\n", LOADING, "import", "kernel/kernel.py:1: `import no_such_thing`: ModuleNotFoundError: No module"),
        ("1 / 0\n", LOADING, "import", "kernel/kernel.py:1: `1 / 0`: ZeroDivisionError: division by zero"),
        ("kernel = 3\n", LOADING, "import", "ImportError: `kernel` in kernel/kernel.py is a int, not a function"),
        ("def other(): pass\n", LOADING, "import", "ImportError: kernel/kernel.py defines no `kernel`"),
        ("def kernel():\n    import sys\n    sys.exit(3)\n", CALLING, "raised", "kernel/kernel.py:3: `sys.exit(3)`: SystemExit: 3"),
        ("def kernel():\n    import no_such_thing\n", CALLING, "import", "kernel/kernel.py:2: `import no_such_thing`: ModuleNotFoundError"),
        ("def kernel():\n    raise MemoryError\n", CALLING, "memory", "kernel/kernel.py:2: `raise MemoryError`: MemoryError"),
        ("def kernel():\n    kernel()\n", CALLING, "raised", "kernel/kernel.py:2: `kernel()`: RecursionError"),
        ("class OutOfMemoryError(RuntimeError): pass\ndef kernel():\n    raise OutOfMemoryError('CUDA')\n", CALLING, "memory", "kernel/k"),
    ],
)
def test_kinds(tmp_path: Path, source: str, phase: str, error: str, detail: str) -> None:
    found = raised(tmp_path, source, phase)
    assert found.error == error
    assert found.detail.startswith(detail)


def test_memory_that_was_refused_comes_first(tmp_path: Path) -> None:
    """torch goes on without memory: whatever is raised then is a consequence."""
    found = raised(tmp_path, "def kernel():\n    raise ValueError('null pointer')\n", memory="4,096 bytes were asked for")
    assert (found.error, found.detail) == ("memory", "kernel/kernel.py:2: `raise ValueError('null pointer')`: 4,096 bytes were asked for")
    with pytest.raises(Refused, match="memory: 512 bytes"), Guard(tmp_path, CALLING, lambda: "512 bytes were asked for"):
        pass


def test_what_is_refused_already_stays(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="nothing: call 3"), Guard(tmp_path, CALLING, lambda: "4 bytes"):
        raise Refused("nothing", "call 3 launched nothing")


def test_compilers_are_known_by_the_module_of_their_errors(tmp_path: Path) -> None:
    source = (
        "class CompilationError(Exception): pass\n"
        "CompilationError.__module__ = 'triton.compiler.errors'\n"
        "def kernel():\n    raise CompilationError('at 5:8:\\n    x = tl.load(p)\\n    ^\\nname p is not defined')\n"
    )
    found = raised(tmp_path, source)
    assert found.error == "compile"
    assert found.detail.endswith("name p is not defined"), "all lines of a compiler"


def test_triton_errors_are_about_compiling(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    found = raised(
        tmp_path,
        "from triton.runtime.errors import OutOfResources\n\ndef kernel():\n    raise OutOfResources(300000, 232448, 'shared memory')\n",
    )
    assert found.error == "compile"
    assert "Required: 300000, Hardware limit: 232448" in found.detail
    graph = raised(
        tmp_path, "def kernel():\n    raise RuntimeError('Triton Error [CUDA]: operation not permitted when stream is capturing')\n"
    )
    assert graph.error == "graph"


def test_a_graph_inside_a_graph_is_named(tmp_path: Path) -> None:
    """torch.compile(mode="reduce-overhead") makes graphs of its own."""
    folder = tmp_path / "lib" / "torch" / "_inductor"
    folder.mkdir(parents=True)
    (folder / "cudagraph_trees.py").write_text(
        "def run():\n    raise RuntimeError('CUDAPluggableAllocator does not yet support getCheckpointState')\n"
    )
    tree = tmp_path / "tree"
    lines = (
        "import importlib.util as u",
        f"s = u.spec_from_file_location('trees', {str(folder / 'cudagraph_trees.py')!r})",
        "m = u.module_from_spec(s)",
        "s.loader.exec_module(m)",
        "def kernel():",
        "    m.run()",
    )
    found = raised(tree, "\n".join(lines))
    assert found.error == "graph"
    assert found.detail.startswith("kernel/kernel.py:6: `m.run()`")


def test_details_are_short_and_can_travel() -> None:
    assert len(Refused("raised", "x" * 9000).detail) == DETAIL
    assert clean("\x1b[31mred\x1b[0m \ud800") == "red ?"


def test_a_guard_lets_pass_what_is_well(tmp_path: Path) -> None:
    with Guard(tmp_path, CALLING, quiet):
        subprocess.run(["true"], check=True)
