"""Images of the same code under other file names and lines are the same; other code is not."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from keepfast.gpu import cubin
from keepfast.gpu.cubin import body, code_hash

SOURCE = 'extern "C" __global__ void twice(float *x) { x[threadIdx.x] *= 2.0f; }\n'


def image(folder: Path, name: str, source: str) -> bytes:
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.cu").write_text(source)
    argv = ["nvcc", "-cubin", "-lineinfo", "-gencode=arch=compute_90a,code=sm_90a", f"{name}.cu", "-o", f"{name}.cubin"]
    subprocess.run(argv, cwd=folder, check=True)
    return (folder / f"{name}.cubin").read_bytes()


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_names_and_lines_of_files_do_not_count(tmp_path: Path) -> None:
    one = image(tmp_path / "here", "a", SOURCE)
    moved = image(tmp_path / "there", "longer_name", "// a comment\n\n" + SOURCE)
    other = image(tmp_path / "here", "b", SOURCE.replace("2.0f", "3.0f"))
    assert one != moved
    assert code_hash(one) == code_hash(moved)
    assert code_hash(one) != code_hash(other)
    assert body(one) == body(moved)
    assert [part.partition(" ")[2] for part in body(one) if body(one)[part] != body(other)[part]][:1] == [".text.twice"]


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_every_byte_that_is_loaded_is_part_of_the_body(tmp_path: Path) -> None:
    """One bit in every fifth byte: what may change is what nothing names, the places of both tables, and lines for debuggers."""
    one = image(tmp_path, "a", SOURCE)
    said = body(one)
    loose = {at for at in range(0, len(one), 5) if _same(said, one[:at] + bytes([one[at] ^ 4]) + one[at + 1 :])}
    spans = [(head[4], head[4] + head[5], name) for name, head in cubin._sections(one) if head[1] != cubin.NOBITS]
    named = {name for at in loose for start, end, name in spans if start <= at < end}
    assert loose
    assert all(name.startswith(cubin.DEBUG) for name in named)


def _same(said: dict[str, str], image: bytes) -> bool:
    try:
        return body(image) == said
    except ValueError:
        return False


def test_what_is_no_image_has_no_body() -> None:
    for data in (b"", b"one", b"\x7fELF\x02\x01" + b"\xff" * 100, b"\x7fELF\x02\x01" + b"\0" * 100):
        with pytest.raises(ValueError, match=r"no |section"):
            body(data)


def test_what_is_no_image_is_hashed_whole() -> None:
    assert code_hash(b"one") != code_hash(b"two")
    assert code_hash(b"\x7fELF\x02\x01" + b"\xff" * 100) != code_hash(b"\x7fELF\x02\x01" + b"\xfe" * 100)
