"""Whatever arrives is read, or refused with the declared error: no crash, no hang, bounded memory. See benchmarks/fuzzing.py."""

from __future__ import annotations

import struct
import time
import tracemalloc
from collections.abc import Iterator
from random import Random

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keepfast.errors import LedgerError
from keepfast.gpu import cubin, plan
from keepfast.gpu.plan import PlanError
from keepfast.judge import elf
from keepfast.ledger import store
from keepfast.model import Experiment
from keepfast.task import rules
from tests.benchmarks.scripts import script

fuzzing, targets = script("fuzzing"), script("fuzz_targets")
TARGETS = {target.name: target for target in targets.targets()}
CALM = settings(max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(autouse=True, scope="module")
def _tidy() -> Iterator[None]:
    yield
    targets.close()


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_are_understood(name: str) -> None:
    did = {fuzzing.attempt(TARGETS[name], seed) for seed in TARGETS[name].seeds}
    assert ("taken", "") in did
    assert not [wrong for _, wrong in did if wrong]


@pytest.mark.parametrize("name", TARGETS)
@given(st.binary(max_size=600))
@CALM
def test_any_bytes(name: str, data: bytes) -> None:
    assert fuzzing.attempt(TARGETS[name], data)[1] == ""


@pytest.mark.parametrize("name", TARGETS)
@given(st.randoms(use_true_random=False), st.integers(1, 6))
@CALM
def test_any_change_of_what_is_right(name: str, rng: Random, times: int) -> None:
    target, one, two = TARGETS[name], rng.choice(TARGETS[name].seeds), rng.choice(TARGETS[name].seeds)
    for _ in range(times):
        one = fuzzing.mutated(rng, one, two, target.tree)
        assert fuzzing.attempt(target, one, memory=times == 1)[1] == ""


# --------------------------------------------------------------------------------------------- that it can fail


def raises(data: bytes) -> None:
    raise KeyError("x")


def hangs(data: bytes) -> None:
    while True:
        time.sleep(0.01)


def hoards(data: bytes) -> None:
    bytearray(fuzzing.ROOM + (1 << 22))


def test_what_is_looked_for_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(run: object, raised: tuple[type[BaseException], ...] = ()) -> str:
        return str(fuzzing.attempt(fuzzing.Target("t", run, raised, (b"x",)), b"x")[1])

    assert wrong(raises) == "raised KeyError: 'x'"
    assert wrong(raises, (KeyError,)) == ""
    assert wrong(hoards).startswith("held 5")
    found = fuzzing.begun(fuzzing.Target("t", raises, (), (b"x",)))
    fuzzing.go_on(found, Random(1), runs=5)
    assert (found.runs, len(found.failures)) == (5, 1)
    monkeypatch.setattr(fuzzing, "HANG_S", 0.2)
    assert wrong(hangs) == "took more than 0.2 s for 1 bytes"


# --------------------------------------------------------------------------------------------- what it found

NESTED = b"\x91" * 5000


def test_nested_arrays_are_no_plan_and_no_record() -> None:
    """They ended the judge with a RecursionError; a plan and a record are refused in their own words."""
    map_of_one = b"\x81\xa1x" + NESTED + b"\xc0"
    with pytest.raises(PlanError, match="not a plan"):
        plan.decode(map_of_one)
    with pytest.raises(LedgerError, match="cannot be read"):
        store.decode(map_of_one, Experiment, "here")


def test_offsets_beyond_any_file_are_no_image(tmp_path: object) -> None:
    """An image whose section table lies at 2^64 - 1 ended the judge with an OverflowError."""
    data = bytearray(targets.an_elf())
    data[40:48] = struct.pack("<Q", 2**64 - 1)
    assert len(cubin.code_hash(bytes(data))) == 64
    with pytest.raises(ValueError, match="no kernel image"):
        cubin.kept_bytes(bytes(data))
    assert elf.MAX_SECTIONS


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("images", [b""] * 2_000_000),
        ("nodes", [[0, ["empty"], []]] * 400_000),
        ("segments", [[4096, 1]] * 500_000),
        ("results", [[]] * 1_000_000),
        ("results", [[[12288, 64]] * 500_000, [[12352, 64]]]),
        ("nodes", [[0, ["empty"], [0] * 2_000_000]]),
        ("nodes", [[0, ["kernel", 0, "rms_norm", [1, 1, 1], [1, 1, 1], 0, [[0, b""]] * 500_000], []]]),
    ],
)
def test_a_small_plan_does_not_become_a_large_one_in_memory(field: str, value: object) -> None:
    """Lists are counted before they are made: 2 MB of empty elements took hundreds."""
    tree = msgspec.msgpack.decode(targets.a_plan())
    data = msgspec.msgpack.encode({**tree, field: value})
    tracemalloc.start()
    try:
        with pytest.raises(PlanError, match="length"):
            plan.decode(data)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "text",
    ['"' + '\\"' * 400_000, "prepare(" * 100_000, "f(" * 200_000 + "prepare", "/*" * 300_000 + "prepare", "{" * 500_000 + "prepare("],
)
def test_a_source_is_searched_in_linear_time(text: str) -> None:
    began = time.monotonic()
    assert rules.prepares("kernel.c", text + " prepare") is False
    assert time.monotonic() - began < 20  # a quadratic search takes an hour


def test_prepare_is_found_where_it_is_defined_and_nowhere_else() -> None:
    there = (
        "int prepare(const float *w)\n{\n}",
        'extern "C" int prepare ( int (*f)(int) ) {',
        "struct a { int b; };\nstatic void prepare(void) /* x */\n{}",
    )
    nowhere = (
        "int prepare(const float *w);",
        "int kernel(void) { return prepare(x); }",
        "/* int prepare(int a) { */",
        'char *a = "prepare(x) {";',
        "prepared(x) {",
    )
    for text in there:
        assert rules.prepares("kernel.c", text), text
    for text in nowhere:
        assert not rules.prepares("kernel.c", text), text
