"""Code hashes: what changes them, what does not, and files that lie about themselves."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keepfast import native
from keepfast.judge.elf import code_hash

SOURCE = """#include <math.h>
static float helper(float v) { return v * 3 + expf(v); }
__attribute__((visibility("default"))) float keepfast_call(float v) { float twice = helper(v); return twice * twice; }
"""


def compiled(folder: Path, text: str, *flags: str, name: str = "a") -> Path:
    source, out = folder / f"{name}.c", folder / f"{name}.so"
    source.write_text(text)
    argv = [
        str(native.compiler()),
        "-O2",
        "-fPIC",
        "-shared",
        "-fvisibility=hidden",
        "-Wl,--build-id=none",
        *flags,
        str(source),
        "-o",
        str(out),
        "-lm",
    ]
    subprocess.run(argv, check=True)
    return out


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("elf"), SOURCE)


@pytest.mark.parametrize(
    ("before", "after", "flags"),
    [
        ("helper", "quite_another_name", ()),
        ("twice", "x", ()),
        ("#include", "/* comment */\n\n#include", ()),
        ("#include", "#include", ("-g",)),
        ("#include", "#include", ("-Wl,--build-id=sha1",)),
        ("#include", "#include", ("-fno-asynchronous-unwind-tables",)),
        ("#include", "#include", ("-Wl,-s",)),
    ],
    ids=["static name", "local name", "comment", "debug", "build id", "unwinding", "stripped"],
)
def test_the_same_code_has_the_same_hash(plain: Path, tmp_path: Path, before: str, after: str, flags: tuple[str, ...]) -> None:
    changed = compiled(tmp_path, SOURCE.replace(before, after), *flags, name="b")
    assert code_hash(changed) == code_hash(plain)
    assert changed.read_bytes() != plain.read_bytes()


@pytest.mark.parametrize(
    ("before", "after", "flags"),
    [
        ("* 3", "* 5", ()),
        ("expf", "logf", ()),
        ("v * 3", "v", ()),
        ("#include", "int extra[4] = {1};\n#include", ("-fvisibility=default",)),
        ("#include", '__asm__(".text\\n.skip 64\\n");\n#include', ()),
        ("#include", "#include", ("-Wl,--no-as-needed", "-lpthread", "-lrt", "-ldl", "-lutil")),
    ],
    ids=["constant", "other import", "less code", "data", "padding", "library"],
)
def test_other_code_has_another_hash(plain: Path, tmp_path: Path, before: str, after: str, flags: tuple[str, ...]) -> None:
    assert code_hash(compiled(tmp_path, SOURCE.replace(before, after), *flags, name="b")) != code_hash(plain)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**31), st.integers(0, 255), st.booleans())
def test_a_broken_file_has_a_hash_of_its_own(plain: Path, tmp_path: Path, at: int, value: int, cut: bool) -> None:
    """Whatever a byte of it says: no error, and never the hash of a file that differs in what is mapped."""
    data = bytearray(plain.read_bytes())
    head = 64 if at % 3 else len(data) - len(data) // 6
    place = at % head if at % 3 else (at % (len(data) - head)) + head
    data[place] = value
    broken = tmp_path / "broken.so"
    broken.write_bytes(bytes(data[: at % len(data)]) if cut else bytes(data))
    assert len(code_hash(broken)) == 64


def test_what_is_no_elf_file_is_hashed_whole(tmp_path: Path) -> None:
    for text in (b"", b"\x7fELF\x02\x01", b"#!/bin/sh\n"):
        (tmp_path / "x").write_bytes(text)
        assert code_hash(tmp_path / "x") == hashlib.sha256(text).hexdigest()
