"""Triton without a card, for scripts of this folder: kernel files as modules, launches that only compile for Hopper, what a cubin uses."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tempfile
import tomllib
import types
from pathlib import Path
from typing import Any


class NoCard:
    """What triton asks of its driver while it compiles."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)


def module_at(path: Path) -> types.ModuleType:
    """A file as a module, with its tunables as the builder would hand them in, and without a device to wait for."""
    tunables, toml = types.ModuleType("keepfast_tunables"), path.with_name("tunables.toml")
    space = tomllib.loads(toml.read_text()) if toml.exists() else {}
    vars(tunables).update({name: said["value"] for name, said in space.items() if isinstance(said, dict)})
    sys.modules["keepfast_tunables"] = tunables
    spec = importlib.util.spec_from_file_location("kernel_" + re.sub(r"\W", "_", path.parts[-3]) + path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def poison() -> None:
    """From now on memory that nothing has written to holds NaN, or the largest whole number: not by chance the answer of an earlier
    call."""
    import torch

    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True


def exact_products() -> None:
    """Triton's interpreter keeps bfloat16 as bits and multiplies them as whole numbers: from now on as the numbers that they are."""
    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter

    def wide(handle: Any) -> Any:
        if handle.dtype.scalar != tl.bfloat16:
            return handle
        return interpreter.TensorHandle((handle.data.astype(np.uint32) << 16).view(np.float32), tl.float32)

    builder = interpreter.InterpreterBuilder
    dot = builder.create_dot
    builder.create_dot = lambda self, a, b, *rest: dot(self, wide(a), wide(b), *rest)


def compiling() -> dict[str, Any]:
    """From now on a launch compiles and does nothing else; the kernels that come of it, by their hash."""
    from triton.runtime.driver import driver
    from triton.runtime.jit import JITFunction

    made: dict[str, Any] = {}
    run = JITFunction.run

    def warm(self: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> None:
        kernel = run(self, *args, grid=grid, warmup=True, **options)
        made[kernel.hash] = kernel

    driver.set_active(NoCard())
    JITFunction.run = warm
    return made


def usage(cubin: bytes) -> tuple[int, int]:
    """Stack and local bytes of a thread."""
    import triton

    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        said = subprocess.run([str(tool), "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    found = re.search(r"STACK:(\d+).*?LOCAL:(\d+)", said)
    assert found is not None, said
    return int(found[1]), int(found[2])
