"""Plans are data from an untrusted process: what does not hold together is refused with a sentence."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from keepfast.gpu import plan as plans
from keepfast.gpu.plan import Block, Copy, Empty, Kernel, Memset, Node, Plan, PlanError, Segment, decode, encode

IMAGE = b"\x7fELF...rms_norm..."
KERNEL = Kernel(0, "rms_norm", (16, 1, 1), (256, 1, 1), 1024, ((0, b"\0" * 8), (8, b"\1" * 4)), (2, 1, 1))
PLAN = Plan(
    plans.VERSION,
    "wide",
    2,
    4096,
    (IMAGE,),
    (Node(0, Memset(4096, 0, 0, 4, 2, 1), ()), Node(0, KERNEL, (0,)), Node(1, KERNEL, ()), Node(1, Memset(8192, 64, 0, 4, 8, 2), (2,))),
    (Segment(4096, 1 << 20),),
    ((Segment(12288, 64),), (Segment(12352, 64),)),
    (Block(16384, b"\1" * 32),),
)


def with_node(index: int, node: Node) -> Plan:
    return replace(PLAN, nodes=(*PLAN.nodes[:index], node, *PLAN.nodes[index + 1 :]))


def test_a_plan_survives_the_trip() -> None:
    assert decode(encode(PLAN)) == PLAN
    assert PLAN.of_call(1) == (2, 3)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (replace(PLAN, version=99), "version 99"),
        (replace(PLAN, images=(b"",) * (plans.MAX_IMAGES + 1)), "images"),
        (replace(PLAN, nodes=PLAN.nodes[:1] * (plans.MAX_NODES + 1)), "nodes"),
        (with_node(1, Node(1, KERNEL, (0,))), "another call"),
        (with_node(1, Node(0, KERNEL, (2,))), "does not come before"),
        (with_node(1, Node(0, KERNEL, (1,))), "does not come before"),
        (with_node(1, Node(7, KERNEL, ())), "call 7 of 2"),
        (with_node(1, Node(0, replace(KERNEL, image=3), ())), "image 3 of 1"),
        (with_node(1, Node(0, replace(KERNEL, name="other"), ())), "no kernel `other`"),
        (with_node(1, Node(0, replace(KERNEL, parameters=((0, b"x" * 5000),)), ())), "parameters"),
        (with_node(1, Node(0, replace(KERNEL, block=(2048, 1, 1)), ())), "no device has"),
        (with_node(1, Node(0, replace(KERNEL, grid=(0, 1, 1)), ())), "no device has"),
        (with_node(0, Node(0, Memset(0, 0, 0, 4, 2, 1), ())), "no segment"),
        (with_node(0, Node(0, Memset(4096, 0, 0, 4, 1 << 20, 1), ())), "no segment"),
        (with_node(0, Node(0, Memset(4096, 0, 0, 4, -2, 1), ())), "negative"),
        (with_node(0, Node(0, Copy(4096, 0, 4160, 0, 64, 1), (), (0,))), "no edge"),
        (with_node(0, Node(0, Copy(4096, 0, 64, 0, 64, 1), ())), "no segment"),
        (with_node(1, Node(0, replace(KERNEL, scheduling=9), ())), "does not exist"),
        (replace(PLAN, results=PLAN.results[:1]), "results of 1"),
        (replace(PLAN, results=(PLAN.results[0], PLAN.results[0])), "results overlap"),
        (replace(PLAN, results=((Segment(64, 64),), PLAN.results[1])), "in no segment"),
        (replace(PLAN, results=((Segment(16384, 64),), PLAN.results[1])), "restored"),
        (replace(PLAN, blocks=(Block(64, b"x"),)), "in no segment"),
        (replace(PLAN, segments=(Segment(8192, 64), Segment(4096, 64))), "out of order"),
        (with_node(3, Node(1, Memset(4096 + (1 << 20) - 64, 64, 0, 4, 8, 2), (2,))), "no segment"),
    ],
)
def test_what_does_not_hold_together_is_refused(wrong: Plan, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        decode(encode(wrong))


@given(st.binary(max_size=400))
@settings(max_examples=300, deadline=None)
def test_noise_is_no_plan(data: bytes) -> None:
    with pytest.raises(PlanError):
        decode(data)


@given(st.integers(0, 10_000), st.integers(0, 255))
@settings(max_examples=300, deadline=None)
def test_a_flipped_byte_is_refused_or_still_a_plan(at: int, value: int) -> None:
    data = bytearray(encode(PLAN))
    data[at % len(data)] = value
    try:
        found = decode(bytes(data))
    except PlanError:
        return
    plans.check(found)
    assert msgspec.msgpack.decode(encode(found), type=Plan) == found


def test_the_signature_does_not_know_addresses_but_knows_everything_else() -> None:
    moved = with_node(0, Node(0, Memset(8192, 0, 0, 4, 2, 1), ()))
    assert moved.signature() == PLAN.signature()
    assert with_node(1, Node(0, replace(KERNEL, grid=(17, 1, 1)), (0,))).signature() != PLAN.signature()
    assert replace(PLAN, images=(IMAGE + b"x",)).signature() != PLAN.signature()


def test_an_oversized_plan_is_not_even_parsed() -> None:
    with pytest.raises(PlanError, match="a plan may have"):
        decode(b"\0" * (plans.MAX_BYTES + 1))


def test_copies_and_joins_are_plans() -> None:
    found = with_node(0, Node(0, Copy(4096, 128, 8192, 64, 64, 4), ()))
    assert decode(encode(with_node(0, Node(0, Empty(), ())))).nodes[0].work == Empty()
    assert decode(encode(found)) == found
    assert found.signature() != PLAN.signature()


def test_scalars_count_when_asked_for_and_addresses_never() -> None:
    moved = with_node(1, Node(0, replace(KERNEL, parameters=((0, (8192).to_bytes(8, "little")), (8, b"\1" * 4))), (0,)))
    again = with_node(1, Node(0, replace(KERNEL, parameters=((0, (9216).to_bytes(8, "little")), (8, b"\1" * 4))), (0,)))
    other = with_node(1, Node(0, replace(KERNEL, parameters=((0, (8192).to_bytes(8, "little")), (8, b"\2" * 4))), (0,)))
    assert moved.signature(exact_scalars=True) == again.signature(exact_scalars=True) != other.signature(exact_scalars=True)
    assert moved.signature() == other.signature()


def test_calls_that_launch_alike_are_even() -> None:
    first, second = Node(0, KERNEL, ()), Node(0, Memset(4096, 0, 0, 4, 2, 1), (0,))
    alike = (first, second, Node(1, KERNEL, ()), Node(1, Memset(8192, 0, 0, 4, 2, 1), (2,)))
    assert replace(PLAN, nodes=alike).uneven() is None
    assert replace(PLAN, nodes=(*alike[:3], Node(1, Memset(8192, 0, 0, 4, 3, 1), (2,)))).uneven() == 1
    assert replace(PLAN, nodes=(*alike[:3], Node(1, Memset(8192, 0, 0, 4, 2, 1), ()))).uneven() == 1
    assert replace(PLAN, nodes=alike[:3]).uneven() == 1
