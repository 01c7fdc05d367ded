from __future__ import annotations

from pathlib import Path

import pytest

from keepfast.walls.paths import opened, unreachable


def test_links_on_the_way_are_kept_and_real_paths_bound(tmp_path: Path) -> None:
    real = tmp_path / "real" / "deep"
    real.mkdir(parents=True)
    (tmp_path / "one").symlink_to("real")
    (tmp_path / "two").symlink_to(tmp_path / "one" / "deep")
    found = opened((str(tmp_path / "two"),))
    assert str(real) in found.read
    assert dict(found.links)[str(tmp_path / "two")] == str(tmp_path / "one" / "deep")
    assert dict(found.links)[str(tmp_path / "one")] == "real"


def test_nested_and_missing_paths_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "ab").mkdir()
    asked = (str(tmp_path / "a" / "b"), str(tmp_path / "a"), str(tmp_path / "ab"), str(tmp_path / "none"), str(tmp_path / "a") + "/")
    assert opened(asked).read == (str(tmp_path / "a"), str(tmp_path / "ab"))


def test_links_inside_an_opened_folder_need_no_help(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "link").symlink_to("other")
    (tmp_path / "a" / "other").mkdir()
    found = opened((str(tmp_path / "a"), str(tmp_path / "a" / "link")))
    assert found.read == (str(tmp_path / "a"),)
    assert found.links == ()


def test_loops_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(ValueError, match="too many symbolic links"):
        opened((str(tmp_path / "a"),))


def test_a_link_to_the_root_opens_nothing(tmp_path: Path) -> None:
    (tmp_path / "all").symlink_to("/")
    with pytest.raises(ValueError, match="whole machine"):
        opened((str(tmp_path / "all"),))


def test_the_folder_that_is_closed(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a").chmod(0o700)
    assert unreachable("/usr/bin") is None
    assert unreachable(str(tmp_path / "a" / "b")) is not None
