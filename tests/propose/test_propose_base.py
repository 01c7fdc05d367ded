"""What counts as one structure, and what counts as a turn."""

from __future__ import annotations

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from keepfast.model import File, Reason
from keepfast.propose.base import VOIDS, settled, structure_hash
from keepfast.task import tunables


def test_other_values_are_the_same_structure(make: SimpleNamespace) -> None:
    changed = tunables.with_values(make.space, {"BLOCK": 64, "LAYOUT": "tile"})
    assert changed != make.space
    assert structure_hash(make.candidate(changed).files, make.path) == structure_hash(make.candidate().files, make.path)


def test_another_kernel_or_another_space_is_another_structure(make: SimpleNamespace) -> None:
    plain = structure_hash(make.candidate().files, make.path)
    other_kernel = make.candidate(kernel=File("kernel/kernel.c", b"int kernel(void) { return 1; }\n"))
    other_space = make.candidate(make.space.replace("[1, 2, 4, 8]", "[1, 2, 4]"))
    executable = make.candidate(kernel=File("kernel/kernel.c", b"int kernel(void) { return 0; }\n", True))
    renamed = make.candidate(kernel=File("kernel/kernels.c", b"int kernel(void) { return 0; }\n"))
    link = make.candidate(kernel=File("kernel/kernel.c", b"int kernel(void) { return 0; }\n", link=True))
    found = {structure_hash(c.files, make.path) for c in (other_kernel, other_space, executable, renamed, link)}
    assert len(found | {plain}) == 6


def test_a_task_without_tunables_hashes_every_byte(make: SimpleNamespace) -> None:
    changed = tunables.with_values(make.space, {"BLOCK": 64})
    assert structure_hash(make.candidate(changed).files, "") != structure_hash(make.candidate().files, "")


files = st.lists(st.builds(File, st.text(min_size=1, max_size=4), st.binary(max_size=6)), max_size=4, unique_by=lambda f: f.path)


@given(files, st.randoms(use_true_random=False))
def test_the_order_of_files_does_not_matter(found: list[File], chance) -> None:  # type: ignore[no-untyped-def]
    mixed = chance.sample(found, len(found))
    assert structure_hash(tuple(found), "t") == structure_hash(tuple(mixed), "t")


def test_bytes_cannot_move_from_one_file_to_the_next() -> None:
    assert structure_hash((File("a", b"xb"), File("c", b"")), "") != structure_hash((File("a", b"x"), File("b", b"c")), "")


def test_a_void_is_no_turn_but_the_third_one_ends_it(make: SimpleNamespace) -> None:
    void = make.experiment(2, Reason.MACHINE)
    assert not settled([])
    assert not settled([void] * (VOIDS - 1))
    assert settled([void] * VOIDS)
    assert settled([void, make.experiment(3, Reason.NO_GAIN)])
