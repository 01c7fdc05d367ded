"""The C ABI: order and types of the arguments, and a shim that hands every word over unchanged."""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from keepfast.model import Task
from keepfast.task import abi, example
from keepfast.task.load import load

SIGNATURE = (
    "f(Tensor x, Tensor(a!)? y, int i, float s, bool flag, str word, int? oi, float? of, bool? ob, str? os, Tensor h) -> (Tensor, Tensor z)"
)
DTYPES = {"x": "float32", "y": "float64", "h": "bfloat16", "out0": "int8", "z": "bool"}
ECHO = """\
#include "keepfast.h"
#include <string.h>
{extern}int kernel({parameters}) {{
    if (KEEPFAST_THREADS != 3) return 9;
    if (y || oi || os || !flag || stream) return 8;
    if (strcmp(word, "words") || *of != -0.25 || *ob != 1) return 7;
    z[0] = (uint8_t)(n == -5);
    out0[0] = (int8_t)(h[0] == 0x3f80);
    return x[0] == 1.5f && i == -9223372036854775807LL - 1 && s == 1e300 && m == 4611686018427387904LL ? 42 : 6;
}}
"""


@pytest.fixture
def task(tmp_path: Path) -> Task:
    text = example.TASK.replace('"row_norms(Tensor x) -> Tensor"', f'"{SIGNATURE}"').replace("threads = 1", "threads = 3")
    for name, content in {**dict(example.FILES), "task.toml": text}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    return load(tmp_path)


def test_words_in_order(task: Task) -> None:
    assert abi.words(task) == ("x", "y", "i", "s", "flag", "word", "oi", "of", "ob", "os", "h", "out0", "z", "m", "n", "stream")
    kinds = {word.name: (word.kind, word.optional, word.written) for word in abi.layout(task)}
    assert kinds["y"] == ("tensor", True, True)
    assert kinds["z"] == ("tensor", False, True)
    assert kinds["n"] == ("axis", False, False)


def test_prototype(task: Task) -> None:
    expected = (
        "int kernel(const float *x, double *y, int64_t i, double s, int flag, const char *word, const int64_t *oi, const double *of, "
        "const int *ob, const char *os, const uint16_t *h, int8_t *out0, uint8_t *z, int64_t m, int64_t n, void *stream)"
    )
    assert abi.prototype(task, DTYPES) == expected
    assert f"{expected};" in abi.header(task, DTYPES)
    assert "const void *x, void *y" in abi.prototype(task, {})


def test_a_signature_cannot_end_the_comment(task: Task) -> None:
    import msgspec

    signature = msgspec.structs.replace(task.signature, text='f(str s="*/ #error /*")')
    comment = abi.header(msgspec.structs.replace(task, signature=signature), DTYPES).split("#ifndef")[0]
    assert comment.count("*/") == 1
    assert comment.count("/*") == 1


@pytest.mark.parametrize(("suffix", "compiler"), [("c", "gcc"), ("cpp", "g++")])
def test_every_word_arrives(task: Task, tmp_path: Path, suffix: str, compiler: str) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"needs {compiler}")
    parameters = abi.prototype(task, DTYPES).split("(", 1)[1][:-1]
    extern = 'extern "C" ' if suffix == "cpp" else ""
    (tmp_path / f"k.{suffix}").write_text(ECHO.format(parameters=parameters, extern=extern))
    (tmp_path / "keepfast.h").write_text(abi.header(task, DTYPES))
    (tmp_path / "shim.c").write_text(abi.shim(task, DTYPES))
    flags = ["-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-fvisibility=hidden", "-Wl,-z,defs", "-I."]
    subprocess.run([compiler, *flags, f"k.{suffix}", "shim.c", "-o", "k.so"], cwd=tmp_path, check=True)
    library = ctypes.CDLL(str(tmp_path / "k.so"))
    assert not hasattr(library, "kernel")
    x, of, ob, h = ctypes.c_float(1.5), ctypes.c_double(-0.25), ctypes.c_int(1), ctypes.c_uint16(0x3F80)
    out0, z, word = ctypes.c_int8(0), ctypes.c_uint8(0), ctypes.c_char_p(b"words")
    at = ctypes.addressof
    text = ctypes.cast(word, ctypes.c_void_p).value or 0
    bits = struct.unpack("<Q", struct.pack("<d", 1e300))[0]
    words = [at(x), 0, 2**63, bits, 1, text, 0, at(of), at(ob), 0, at(h), at(out0), at(z), 2**62, 2**64 - 5, 0]
    assert library.keepfast_call((ctypes.c_uint64 * len(words))(*words)) == 42
    assert (out0.value, z.value) == (1, 1)
