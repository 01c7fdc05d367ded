"""Changes that do nothing have other code and the same hot loops; renames have the same code; gains are counted."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import ModuleType

import pytest
from msgspec.structs import replace

from keepfast.judge.elf import code_hash
from tests.benchmarks.scripts import script

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None or shutil.which("objdump") is None, reason="needs gcc and objdump")
FLAGS = ("-O2", "-Wall", "-fPIC", "-shared", "-fvisibility=hidden", "-falign-functions=64", "-falign-loops=32", "-Wl,--build-id=none")
HEADER = "int kernel(const float *x, float *out, int64_t m, int64_t n, void *stream);\n"
SHIM = '#include <stdint.h>\n#include "keepfast.h"\nvoid *keepfast_call __attribute__((visibility("default"))) = (void *)kernel;\n'

Compile = Callable[[str], Path]


@pytest.fixture(scope="module")
def noops() -> ModuleType:
    return script("noops")


@pytest.fixture(scope="module")
def shapes() -> ModuleType:
    return script("shapes")


@pytest.fixture
def compiled(tmp_path: Path) -> Compile:
    (tmp_path / "keepfast.h").write_text(HEADER)
    (tmp_path / "shim.c").write_text(SHIM)

    def build(text: str) -> Path:
        (tmp_path / "kernel.c").write_text(text)
        out = tmp_path / "out.so"
        subprocess.run(["gcc", *FLAGS, f"-I{tmp_path}", tmp_path / "kernel.c", tmp_path / "shim.c", "-o", out], check=True)
        return out

    return build


def instructions(path: Path, name: str) -> list[str]:
    """Of one function, without addresses and padding."""
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", str(path)], check=True, capture_output=True, text=True).stdout
    body = re.search(rf"^[0-9a-f]+ <{name}>:\n((?:.+\n)+)", text, re.M)
    assert body is not None
    lines = [
        re.sub(r"[0-9a-f]+ <[^>]*>|-?0x[0-9a-f]+\(%rip\)|\s*#.*", "", line.partition("\t")[2]).strip() for line in body[1].splitlines()
    ]
    while lines[-1] != "ret":  # what stands after the last one fills up to the next function
        lines.pop()
    return lines


@pytest.mark.parametrize("kind", script("noops").KINDS)
def test_a_no_op_leaves_the_hot_loops_alone(noops: ModuleType, shapes: ModuleType, compiled: Compile, kind: str) -> None:
    plain = compiled(shapes.source(shapes.Shape()))
    before, hot = code_hash(plain), [instructions(plain, name) for name in shapes.HOT]
    codes = set()
    for seed in range(3):
        changed = compiled(shapes.source(noops.change(kind, Random(f"{kind} {seed}"))))
        codes.add(code_hash(changed))
        assert [instructions(changed, name) for name in shapes.HOT] == hot
    assert codes - {before}, "at least one of three draws is other code"


def test_names_and_comments_are_no_code(noops: ModuleType, shapes: ModuleType, compiled: Compile) -> None:
    text = shapes.source(shapes.Shape())
    before = code_hash(compiled(text))
    for seed in range(3):
        renamed = noops.renamed(text, Random(seed))
        assert renamed != text
        assert code_hash(compiled(renamed)) == before


def test_draws_are_a_function_of_the_seed(noops: ModuleType, shapes: ModuleType) -> None:
    one, again = (shapes.source(noops.change("mixture", Random("s"))) for _ in range(2))
    assert one == again
    assert one != shapes.source(noops.change("mixture", Random("t")))


COUNTED = """
#include <stdio.h>
#include <stdlib.h>
int main(void)
{
    int64_t m = 160, n = 8;
    float *x = calloc(m * n, 4), *y = calloc(m * n, 4);
    kernel(x, y, m, n, 0);
    for (int64_t i = 0; i < m * n; i++) if (y[i] < 0.12f || y[i] > 0.13f) return 1;
    printf("%ld", computed);
    return 0;
}
"""


@pytest.mark.parametrize("place", ["turn", "first", "middle", "last"])
@pytest.mark.parametrize("into", ["spare", "out"])
def test_the_champion_computes_21_rows_for_20(noops: ModuleType, shapes: ModuleType, tmp_path: Path, place: str, into: str) -> None:
    """Counted as it runs: every row calls largest() once."""
    for seed in range(3):
        shape = noops.change("walk", Random(f"{place} {seed}"))
        for extra in (None, shapes.Extra(place, 7 * seed, into)):
            made = replace(shape, extra=extra)
            text = shapes.source(made).replace("float max = x[0];", "computed++;\n    float max = x[0];", 1)
            (tmp_path / "keepfast.h").write_text(HEADER + "static long computed;\n")
            (tmp_path / "main.c").write_text(text + COUNTED)
            subprocess.run(["gcc", "-O2", f"-I{tmp_path}", tmp_path / "main.c", "-o", tmp_path / "main", "-lm"], check=True)
            counted = subprocess.run([tmp_path / "main"], check=True, capture_output=True, text=True).stdout
            assert int(counted) == shapes.computed(made, 160) == (168 if extra else 160)
