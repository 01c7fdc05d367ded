"""Plans are data from an untrusted process: what does not hold together is refused with a sentence."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from keepfast.launcher import plan as plans
from keepfast.launcher.plan import Kernel, Memset, Node, Plan, PlanError, Segment, decode, encode

IMAGE = b"\x7fELF...rms_norm..."
KERNEL = Kernel(0, "rms_norm", (16, 1, 1), (256, 1, 1), 1024, ((0, b"\0" * 8), (8, b"\1" * 4)), (2, 1, 1))
PLAN = Plan(
    plans.VERSION,
    (IMAGE,),
    (Node(0, Memset(4096, 0, 0, 4, 2, 1), ()), Node(0, KERNEL, (0,)), Node(1, KERNEL, ()), Node(1, Memset(8192, 64, 0, 4, 8, 2), (2,))),
    (Segment(4096, 1 << 20),),
    2,
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
    moved = replace(moved, segments=(Segment(8192, 1 << 20),))
    assert moved.signature() == PLAN.signature()
    assert with_node(1, Node(0, replace(KERNEL, grid=(17, 1, 1)), (0,))).signature() != PLAN.signature()
    assert replace(PLAN, images=(IMAGE + b"x",)).signature() != PLAN.signature()


def test_an_oversized_plan_is_not_even_parsed() -> None:
    with pytest.raises(PlanError, match="a plan may have"):
        decode(b"\0" * (plans.MAX_BYTES + 1))
