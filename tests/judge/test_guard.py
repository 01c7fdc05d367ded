"""The guard: names and sizes, whatever a file is called."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.judge import guard
from keepfast.judge.guard import Refused
from keepfast.model import Candidate, File, Reason
from tests.judge.tasks import softmax_task

TASK = softmax_task()


def candidate(*files: tuple[str, bytes]) -> Candidate:
    return Candidate(tuple(File(path, data) for path, data in files), "t", "")


START = candidate(("kernel/kernel.c", b"int kernel;\n"))


@pytest.mark.parametrize(
    "path",
    [
        "../task.toml",
        "/etc/passwd",
        "task.toml",
        "reference.py",
        "kernel/../task.toml",
        ".git/config",
        "kernel/.gitattributes",
        "kernel/.GIT/x",
        "",
        "kernel\\x",
    ],
)
def test_a_path_that_is_not_editable_is_refused(path: str) -> None:
    found = guard.check(TASK, candidate((path, b"x")), START)
    assert isinstance(found, Refused)
    assert found.reason is Reason.GUARD


def test_names_that_fold_together_are_refused() -> None:
    found = guard.check(TASK, candidate(("kernel/a.c", b""), ("kernel/A.c", b"")), START)
    assert isinstance(found, Refused)
    decomposed = unicodedata.normalize("NFD", "kernel/é.c")
    assert isinstance(guard.check(TASK, candidate((decomposed, b"")), START), Refused)


def test_size_and_binary_content() -> None:
    big = guard.check(TASK, candidate(("kernel/kernel.c", b"x" * (guard.MAX_FILE + 1))), START)
    assert isinstance(big, Refused)
    assert big.reason is Reason.TOO_BIG
    many = guard.check(TASK, candidate(*((f"kernel/{i}.h", b"") for i in range(guard.MAX_FILES + 1))), START)
    assert isinstance(many, Refused)
    assert many.reason is Reason.TOO_BIG
    blob = guard.check(TASK, candidate(("kernel/kernel.c", b"\x7fELF\0")), START)
    assert isinstance(blob, Refused)
    assert blob.reason is Reason.GUARD


def test_what_passes_is_counted_and_telling_calls_are_named() -> None:
    facts = guard.check(TASK, candidate(("kernel/kernel.c", b"int kernel;\npthread_create(a);\n")), START)
    assert not isinstance(facts, Refused)
    said = {f.name: f.value for f in facts}
    assert said["change"] == "1 file, +1 -0"
    assert said["calls"] == "pthread_create"


@given(st.text(min_size=1, max_size=40))
def test_only_paths_below_the_editable_folder_ever_pass(path: str) -> None:
    found = guard.check(TASK, candidate((path, b"x")), START)
    if not isinstance(found, Refused):
        assert path.startswith("kernel/")
        assert ".." not in path.split("/")
