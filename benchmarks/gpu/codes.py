"""What the dresses of dresses.py compile to, and what they compute, without a GPU.

    python benchmarks/gpu/codes.py [--values] [--only 8]

Compiles each for sm_90 and prints a JSON line: its name, a hash of the code, registers, shared memory. With --values Triton's
interpreter runs each on a small matrix instead, rows beyond the last among them, and the line has the largest error over the RMS of
its row.
Needs torch and Triton.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dresses
from dresses import COLUMNS, DRESSES, ROWS, Dress

SMALL = (24, 64)  # rows and columns that the interpreter works on


def kernels(only: int, more: int) -> Iterator[tuple[Dress, Callable[..., Any]]]:
    """The plain one and the others, imported from files, as Triton wants them."""
    with tempfile.TemporaryDirectory() as folder:
        for number, worn in enumerate((Dress(), *DRESSES)[:only]):
            path = Path(folder) / f"dress_{number}.py"
            path.write_text(dresses.source(worn, more))
            spec = importlib.util.spec_from_file_location(path.stem, path)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[path.stem] = module
            spec.loader.exec_module(module)
            yield worn, module.kernel


def codes(only: int) -> Iterator[dict[str, Any]]:
    import torch

    from keepfast.capture import no_gpu
    from keepfast.gpu.cubin import code_hash

    driver = no_gpu.Driver(90)
    no_gpu.install(driver)
    no_gpu.pretend(driver)
    for worn, kernel in kernels(only, 0):
        driver.compiled.clear()
        with no_gpu.without_memory():
            x = torch.empty((ROWS, COLUMNS), dtype=torch.bfloat16, device="cuda")
            kernel(x, torch.empty(COLUMNS, dtype=torch.bfloat16, device="cuda"), 1e-6)
        ((image, made),) = driver.compiled.items()
        yield {"name": worn.name, "code": code_hash(image), "registers": made.registers, "shared": made.shared_bytes}


def values(only: int) -> Iterator[dict[str, Any]]:
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported
    import torch

    generator = torch.Generator().manual_seed(1)
    x = torch.randn(SMALL, generator=generator).to(torch.bfloat16)
    weight = (1 + torch.randn(SMALL[1], generator=generator) / 4).to(torch.bfloat16)
    wide = x.double()
    exact = wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + 1e-6) * weight.double()
    for worn, kernel in kernels(only, 8):
        error = (kernel(x, weight, 1e-6).double() - exact).abs().amax(-1) / exact.square().mean(-1).sqrt()
        yield {"name": worn.name, "error": float(error.max())}


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--values", action="store_true")
    parser.add_argument("--only", type=int, default=len(DRESSES) + 1)
    given = parser.parse_args(words)
    for found in values(given.only) if given.values else codes(given.only):
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
