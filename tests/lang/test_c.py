from __future__ import annotations

import pytest

from keepfast import native
from keepfast.errors import TaskError
from keepfast.lang.base import OUTPUT, by_name
from keepfast.lang.c import C
from keepfast.model import Build
from tests.judge.tasks import softmax_task

PLACES = {"tree": "/t", "generated": "/g", "scratch": "/s", "made": "/m"}


def argv(**build: tuple[str, ...]) -> tuple[str, ...]:
    (step,) = C().plan(softmax_task(build=Build(**build)), (), {})
    return step.resolved(PLACES)


def test_it_claims_c_and_cpp() -> None:
    for path in ("kernel/kernel.c", "a.cpp", "a.cc", "deep/er/a.cxx"):
        assert C().claims((path, "more.c"))
    for paths in (("kernel.cu",), ("kernel.py",), ("kernel.c", "other.cu"), ("c",)):
        assert not C().claims(paths)


def test_the_humans_flags_come_first_and_libraries_last() -> None:
    words = argv(flags=("-O3", "-march=native"), libs=("-lfoo",), sources=("src/more.c",), include=("inc",))
    assert words[0] == str(native.compiler())
    assert words[1:3] == ("-O3", "-march=native")
    assert [w for w in words if w.endswith(".c")] == ["/t/kernel/kernel.c", "/t/src/more.c", "/g/shim.c"]
    assert words.index("-lfoo") > words.index("/g/shim.c")
    assert words.index("-I/g") < words.index("-I/t/inc")
    assert words[words.index("-o") + 1] == f"/s/{OUTPUT}"
    assert {"-fPIC", "-shared", "-fvisibility=hidden", "-falign-functions=64", "-falign-loops=32", "-Wl,--build-id=none"} <= set(words)


def test_folders_stay_out_of_the_result() -> None:
    assert "-ffile-prefix-map=/t/=" in argv()
    assert "{" not in " ".join(argv())


def test_the_cpp_library_is_linked_for_cpp_only() -> None:
    assert "-lstdc++" not in argv()
    (step,) = C().plan(softmax_task(entry_path="kernel/kernel.cpp"), (), {})
    assert "-lstdc++" in step.argv


def test_an_unknown_language_names_the_known() -> None:
    assert by_name("c").name == "c"
    with pytest.raises(TaskError, match="known: c"):
        by_name("cobol")
