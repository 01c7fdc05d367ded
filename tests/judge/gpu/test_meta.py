"""What host code may read: one draw for all captures of a run, another for every confirm, the same for both arms and all contents."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from keepfast.gpu.layout import Layout
from keepfast.model import Reason

from .stand import START, Stand, candidate

FAST = {"code": "fast", "ns": 8_000.0}


def readable(layout: Layout) -> Layout:
    given = tuple(replace(g, tensor=replace(g.tensor, role="meta")) for g in layout.given if g.tensor is not None)
    return replace(layout, given=given) if layout.case == "main" else layout


@pytest.fixture
def stand(stands: Callable[..., Stand]) -> Stand:
    made = stands(laid=readable)
    made.begun()
    return made


def metas(stand: Stand, kind: str) -> list[tuple[int, ...]]:
    return [meta for case, of, meta in stand.oracle.metas if (case, of) == ("main", kind)]


def test_it_is_the_same_until_confirm_and_new_for_each(stand: Stand) -> None:
    for number in range(2):
        assert stand.evaluate(code=f"fast{number}", ns=8_000.0).kept
    base, *_ = metas(stand, "host")
    contents, samples = metas(stand, "gpu"), metas(stand, "host")
    assert len(set(samples)) == len(samples) == 3, "the run's, and one for each confirm"
    before, confirms = [m for m in contents if m == base], [m for m in contents if m != base]
    assert confirms == samples[1:]
    assert len(before) >= 3
    assert len(base) == 4
    assert {meta for case, _, meta in stand.oracle.metas if case == "odd"} == {()}, "where the host reads nothing"


def test_both_arms_of_a_confirm_are_captured_on_the_same_draw(stand: Stand) -> None:
    assert stand.evaluate(**FAST).kept
    subjects = [s.samples for s in stand.pool.subjects]
    assert len(subjects) == 3
    screened, confirmed, opponent = subjects
    assert confirmed == opponent != screened
    assert screened == stand.judge.shelf._base


def test_the_champion_is_captured_anew_for_every_confirm(stand: Stand) -> None:
    assert stand.evaluate(**FAST).kept
    stand.forget()
    assert stand.evaluate(code="faster", ns=7_000.0).kept
    again = [s.samples for s in stand.pool.subjects if b"start" in next(f.data for f in s.files if f.path == s.entry_path)]
    assert len(again) == 1, "not its first capture, which is of what all first captures read"
    assert again[0] == stand.judge.shelf.samples


def test_same_code_is_seen_after_a_confirm(stand: Stand) -> None:
    assert stand.evaluate(**FAST).kept
    champion = candidate(2, **FAST)
    assert stand.judge.evaluate(candidate(3, **FAST, keeps=False), champion, ()).reason is Reason.SAME_CODE
    assert stand.evaluate(code="start").reason is Reason.SAME_CODE
    assert START.n == 1


def test_what_is_launched_for_other_values_is_checked_and_not_held_to_the_first_capture(stand: Stand) -> None:
    assert stand.evaluate(code="by lengths", ns=8_000.0, moving=True).kept, "another grid for other lengths"


def test_without_it_another_grid_is_unstable(stands: Callable[..., Stand]) -> None:
    plain = stands()
    assert plain.begun().evaluate(code="by chance", ns=8_000.0, moving=True).reason is Reason.UNSTABLE_PLAN
    assert {meta for _, _, meta in plain.oracle.metas} == {()}
