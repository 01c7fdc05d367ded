"""Autotuned kernels are held to one configuration, and all of them are told."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from keepfast.capture import load
from keepfast.capture.autotune import Autotuned
from keepfast.capture.refusals import Refused

pytest.importorskip("triton")

SOURCE = b"""
import triton
import triton.language as tl

def configs(*blocks):
    return [triton.Config({"BLOCK": b}, num_warps=w) for b in blocks for w in (4, 8)]

@triton.autotune(configs=configs(64, 128), key=["n"])
@triton.jit
def add(x, n, BLOCK: tl.constexpr):
    pass

@triton.heuristics({"EVEN": lambda args: args["n"] % 2 == 0})
@triton.autotune(configs=configs(256), key=["n"])
@triton.jit
def scale(x, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    pass

@triton.jit
def plain(x):
    pass

class Holder:
    kernel = add

TABLE = {"scale": scale}

def later():
    global late
    @triton.autotune(configs=configs(16), key=["n"])
    @triton.jit
    def late(x, n, BLOCK: tl.constexpr):
        pass

def kernel():
    return add, scale
"""


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Path]:
    load.write(tmp_path, [("kernel.py", SOURCE)])
    load.python(tmp_path, "kernel.py", "kernel")
    yield tmp_path
    del sys.modules[load.MODULE]


def words(tuner: object) -> list[str]:
    return [str(c) for c in tuner.configs]  # type: ignore[attr-defined]


def test_each_keeps_the_configuration_named(tree: Path) -> None:
    module, found = sys.modules[load.MODULE], Autotuned(tree)
    assert found.restrict({"scale": 1})
    assert words(module.add) == ["BLOCK: 64, num_warps: 4, num_ctas: 1, num_stages: 3, maxnreg: None"]
    assert words(module.scale.fn) == ["BLOCK: 256, num_warps: 8, num_ctas: 1, num_stages: 3, maxnreg: None"]
    assert not found.restrict({"add": 3}), "nothing new"
    assert words(module.add) == ["BLOCK: 128, num_warps: 8, num_ctas: 1, num_stages: 3, maxnreg: None"]
    assert [(name, len(configs)) for name, configs in found.described()] == [("add", 4), ("scale", 2)]
    assert found.described()[0][1][3].startswith("BLOCK: 128, num_warps: 8")


def test_what_earlier_calls_chose_is_forgotten(tree: Path) -> None:
    module = sys.modules[load.MODULE]
    module.add.cache[(1,)] = module.add.configs[2]
    Autotuned(tree).restrict({})
    assert module.add.cache == {}


def test_kernels_that_appear_later_are_found(tree: Path) -> None:
    module, found = sys.modules[load.MODULE], Autotuned(tree)
    found.restrict({})
    module.later()
    assert found.restrict({})
    assert len(module.late.configs) == 1


def test_two_of_one_name_are_told_apart(tree: Path) -> None:
    load.write(
        tree, [("more.py", SOURCE + b"\nagain = triton.autotune(configs=configs(32), key=['n'])(plain)\nagain.base_fn = add.base_fn\n")]
    )
    sys.path.insert(0, str(tree))
    import more

    sys.path.remove(str(tree))
    try:
        found = Autotuned(tree)
        found.restrict({"more.py:add": 1})
        names = {name for name, _ in found.described()}
        assert names == {"add", "scale", "more.py:add", "more.py:scale", "more.py:add#2"}
        assert len(more.again.configs) == 1
        assert words(more.add)[0].startswith("BLOCK: 64, num_warps: 8")
    finally:
        del sys.modules["more"]


def test_a_configuration_that_is_not_there_is_refused(tree: Path) -> None:
    with pytest.raises(Refused, match="`add` has 4 configurations, and number 9 was asked for"):
        Autotuned(tree).restrict({"add": 9})


def test_other_modules_are_left_alone(tree: Path) -> None:
    assert Autotuned(tree / "elsewhere").described() == ()
    found = Autotuned(tree / "elsewhere")
    assert not found.restrict({})
