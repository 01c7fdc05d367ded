"""What the preprocessor makes of files: names, places, and sentences for what is not found."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from keepfast.errors import TaskError
from keepfast.task import cproto, preprocess
from keepfast.task.preprocess import Settings, Unit

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")

KERNEL = """\
#include <stdint.h>
#include "names.h"
#define PASTE(a, b) a##b
#define NAME(a, b) PASTE(a, b)
#define TYPE float
#include "body.inc"
API int plain(int a) { return a; }
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    top = tmp_path / "a répo \\ 'x'"
    (top / "inc").mkdir(parents=True)
    (top / "src").mkdir()
    (top / "src" / "k.c").write_text(KERNEL)
    (top / "src" / "names.h").write_text("#define API static inline __attribute__((unused))\n#define plain renamed\n")
    (top / "src" / "body.inc").write_text("void NAME(TYPE, _scale)(TYPE *x, uint8_t n) { x[0] = n; }\n")
    return top


def read(root: Path, symbol: str, name: str = "src/k.c", **more: object) -> Unit:
    return preprocess.read(root / name, symbol, Settings(root, **more))  # type: ignore[arg-type]


def test_a_function_that_macros_make_in_a_file_that_is_included(root: Path) -> None:
    unit = read(root, "float_scale")
    found = cproto.find(unit.own, unit.symbol, cproto.aliases_of(unit.text))
    assert [(p.name, p.type.text, p.type.dtype) for p in found.parameters] == [("x", "float *", "float32"), ("n", "uint8_t", "uint8")]
    assert unit.file_at(found.at) == root / "src" / "body.inc"
    assert unit.files == tuple(root / "src" / name for name in ("body.inc", "k.c", "names.h"))


def test_a_name_that_is_a_macro(root: Path) -> None:
    unit = read(root, "plain")
    assert unit.symbol == "renamed"
    assert unit.file_at(cproto.find(unit.own, unit.symbol).at) == root / "src" / "k.c"


def test_what_is_not_the_repositorys_keeps_its_place_as_spaces(root: Path) -> None:
    unit = read(root, "plain")
    assert len(unit.own) == len(unit.text)
    assert "uint8_t" in unit.own
    assert "typedef" in unit.text
    assert "typedef" not in unit.own
    assert all(a in (b, " ", "\n") for a, b in zip(unit.own, unit.text, strict=True))


def test_flags_and_folders_count(root: Path) -> None:
    (root / "inc" / "deep.h").write_text("int deep(int a) { return a; }\n")
    (root / "src" / "d.c").write_text("#ifdef DEEP\n#include <deep.h>\n#endif\n")
    assert cproto.defined(read(root, "deep", "src/d.c").own) == ()
    unit = read(root, "deep", "src/d.c", include=(root / "inc",), flags=("-DDEEP",))
    assert unit.file_at(cproto.find(unit.own, "deep").at) == root / "inc" / "deep.h"


def test_cpp(root: Path) -> None:
    (root / "src" / "t.cpp").write_text(
        "using real = double;\ntemplate <class T> T id(T x) { return x; }\nreal one(const real *x) { return id(*x); }\n"
    )
    unit = read(root, "one", "src/t.cpp", cpp=True)
    assert cproto.find(unit.own, "one", cproto.aliases_of(unit.text)).parameters[0].type.text == "const double *"


MISSING = [
    ("sub/deep.h", "inc/sub/deep.h", "--include inc"),
    ("deep.h", "inc/sub/deep.h", "--include inc/sub"),
    ("config.h", "config.h.in", "It is made from config.h.in: configure or build this project first"),
    ("nowhere.h", "inc/else.h", "It is not in this repository"),
]


@pytest.mark.parametrize(("header", "there", "step"), MISSING, ids=[step for _, _, step in MISSING])
def test_a_header_that_is_not_found(root: Path, monkeypatch: pytest.MonkeyPatch, header: str, there: str, step: str) -> None:
    (root / there).parent.mkdir(parents=True, exist_ok=True)
    (root / there).write_text("")
    (root / "src" / "m.c").write_text(f"\n#include <{header}>\n")
    monkeypatch.chdir(root)
    with pytest.raises(TaskError) as caught:
        read(root, "f", "src/m.c")
    assert caught.value.what == f"includes `{header}`, which is not found"
    assert caught.value.where.endswith("m.c:2")
    assert caught.value.next_step.startswith(step)


def test_an_error_of_the_file_itself(root: Path) -> None:
    (root / "src" / "e.c").write_text("#ifndef MODE\n#error define MODE\n#endif\n")
    with pytest.raises(TaskError, match="define MODE") as caught:
        read(root, "f", "src/e.c")
    assert "--flag=-D" in caught.value.next_step
    assert read(root, "f", "src/e.c", flags=("-DMODE=1",)).files == (root / "src" / "e.c",)


def test_a_flag_that_the_compiler_does_not_know(root: Path) -> None:
    with pytest.raises(TaskError, match="unrecognized"):
        read(root, "plain", flags=("-fno-such-thing",))
