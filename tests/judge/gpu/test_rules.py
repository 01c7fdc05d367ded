"""[rules] on a GPU, held against plans and kernel images: each with a kernel that breaks it and one that looks as if it did."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from keepfast.gpu import cubin
from keepfast.gpu.messages import KernelFacts
from keepfast.gpu.plan import Block, Plan
from keepfast.judge.endings import Failure
from keepfast.judge.gpu import rules
from keepfast.judge.gpu.rules import Subject, judge
from keepfast.model import File, Reason, Rules, Task
from tests.gpu_records.test_plan import KERNEL, PLAN
from tests.judge.tasks import softmax_task

from .stand import PATH, Stand, gpu_task
from .test_provenance import FILL, TRITON, Made, kernels

HMMA_F32, HMMA_F16 = (0x0000000C0804723C, 0x004FDE0000001804), (0x000000060804723C, 0x004FDE0000000804)
TF32 = (0x0000000C0804723C, 0x004FDE0000081004)
HGMMA_F32, HGMMA_F16 = (0x00200000041879F0, 0x000FE60008001818), (0x002000041C187DF0, 0x000FE60008700018)
QGMMA_F32, QGMMA_F16 = (0x00200000041879F3, 0x000FE60008000818), (0x00200000041879F3, 0x000FE60008000018)
QMMA_F32 = (0x0000000C0804727A, 0x004FDE0000002C04)
NOP = (0x0000000000007918, 0x000FC00000000000)
Word = tuple[int, int]


def image(code: dict[str, tuple[Word, ...]], *, device: tuple[str, ...] = (), kept: int = 0) -> bytes:
    """A cubin with these kernels, those of `device` being functions that others call, and a variable of `kept` bytes."""
    parts = [(f".text.{name}", 1, 6, b"".join(struct.pack("<QQ", *word) for word in words)) for name, words in code.items()]
    parts += [(f".nv.constant0.{name}", 1, 2, b"\0" * 8) for name in code if name not in device]
    parts += [(".nv.global", 8, 3, b"\0" * kept)] if kept else []
    names = b"\0" + b"".join(name.encode() + b"\0" for name, *_ in parts) + b".shstrtab\0"
    body, heads = bytearray(64), [struct.pack("<IIQQQQIIQQ", *[0] * 10)]
    for name, kind, flags, data in [*parts, (".shstrtab", 3, 0, names)]:
        heads.append(struct.pack("<IIQQQQIIQQ", names.index(name.encode() + b"\0"), kind, flags, 0, len(body), len(data), 0, 0, 1, 0))
        body += b"" if kind == 8 else data
    sizes = (64, 0, 0, 64, len(heads), len(heads) - 1)
    body[:64] = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack("<HHIQQQIHHHHHH", 2, 190, 1, 0, 0, len(body), 0, *sizes)
    return bytes(body) + b"".join(heads)


def subject(made: bytes = b"", dtypes: dict[str, str] | None = None, blocks: tuple[Block, ...] = (), source: bytes = b"") -> Subject:
    plan = replace(PLAN, images=(made or image({"rms_norm": (NOP,)}),), blocks=blocks)
    tree = Made((File(PATH, source),)) if source else TRITON
    return Subject(tree, (plan,), dtypes or {"x": "bfloat16"})


def judged(ruled: Rules, made: Subject, found: tuple[KernelFacts, ...] = ()) -> str:
    """What is said of it; "" when it passes."""
    task: Task = softmax_task(rules=ruled, entry_path=PATH, languages=("triton",))
    said = judge(task, made, found or kernels(("rms_k", 1.0)))
    if not isinstance(said, Failure):
        return ""
    assert said.reason is Reason.RULE
    return said.detail


# --------------------------------------------------------------------------------------------- no_state


def test_memory_that_lives_on_is_state() -> None:
    made = subject(blocks=(Block(16384, b"\1" * 32),))
    assert judged(Rules(no_state=True), made).startswith("keeps 32 bytes of device memory from call to call")
    assert judged(Rules(), made) == ""
    assert judged(Rules(no_state=True), subject()) == ""


def test_variables_of_a_module_are_state() -> None:
    made = image({"rms_norm": (NOP,)}, kept=4)
    assert "4 bytes of `__device__` variables" in judged(Rules(no_state=True), subject(made))
    assert judged(Rules(), subject(made)) == ""
    assert "cannot be looked into" in judged(Rules(no_state=True), subject(b"\x7fELF rms_norm"))


def test_images_that_nothing_is_launched_from_do_not_count() -> None:
    made = subject()
    other = replace(made.plans[0], images=(made.plans[0].images[0], image({"x": (NOP,)}, kept=64)))
    assert judged(Rules(no_state=True), replace(made, plans=(other,))) == ""
    assert {k.image for k in other.kernels()} == {KERNEL.image} == {0}


# --------------------------------------------------------------------------------------------- precision_floor


@pytest.mark.parametrize(
    ("words", "floors"),
    [
        ((HMMA_F16,), ("fp32", "tf32")),
        ((HGMMA_F16, HGMMA_F32), ("fp32", "tf32")),
        ((QMMA_F32,), ("fp32", "tf32", "fp16", "bf16")),
        ((QGMMA_F32,), ("fp32", "tf32", "fp16", "bf16")),
        ((HMMA_F32, HGMMA_F32, TF32), ()),  # split products of less bits with sums in float32 may reach any floor: the error budget decides
    ],
)
def test_how_tensor_cores_add_up(words: tuple[Word, ...], floors: tuple[str, ...]) -> None:
    made = subject(image({"rms_norm": (NOP, *words)}))
    for floor in ("fp32", "tf32", "fp16", "bf16"):
        assert bool(judged(Rules(precision_floor=floor), made)) is (floor in floors), floor
    assert judged(Rules(), made) == ""


def test_products_of_8_bit_floats_are_exact_where_the_inputs_are_8_bit_floats() -> None:
    made = image({"rms_norm": (QGMMA_F32,)})
    assert judged(Rules(precision_floor="fp32"), subject(made, {"x": "float8_e4m3fn", "out": "bfloat16"})) == ""
    low = subject(image({"rms_norm": (QGMMA_F16,)}), {"x": "float8_e4m3fn"})
    assert "`rms_norm` has QGMMA of 8-bit floats, sums in float16" in judged(Rules(precision_floor="fp32"), low)


def test_kernels_that_are_not_launched_do_not_count_and_functions_that_may_be_called_do() -> None:
    floor = Rules(precision_floor="fp32")
    assert judged(floor, subject(image({"rms_norm": (NOP,), "other": (HMMA_F16,)}))) == ""
    assert judged(floor, subject(image({"rms_norm": (NOP,), "called": (HMMA_F16,)}, device=("called",)))) != ""


@given(st.binary(max_size=300), st.integers(0, 400), st.integers(0, 255))
def test_a_damaged_image_is_no_image(noise: bytes, at: int, value: int) -> None:
    whole = bytearray(image({"rms_norm": (HMMA_F16,)}, kept=4))
    whole[at % len(whole)] = value
    for data in (noise, bytes(whole), b"\x7fELF\x02\x01" + noise):
        for look in (cubin.kept_bytes, lambda d: cubin.low_sums(d, {"rms_norm"})):
            try:
                look(data)
            except ValueError:
                continue
        assert len(cubin.code_hash(data)) == 64


# --------------------------------------------------------------------------------------------- languages, prepare


def test_kernels_of_another_language() -> None:
    only = Rules(languages=("triton",))
    assert judged(only, subject(), kernels(("rms_k", 0.995), ("mystery", 0.005))) == ""
    said = judged(only, subject(), kernels(("rms_k", 0.6), ("mystery", 0.4)))
    assert (
        said == "40 % of GPU time is in kernels that its files do not define: `mystery`; the task says that kernels are written in Triton"
    )
    assert judged(Rules(), subject(), kernels(("rms_k", 0.6), ("mystery", 0.4))) == ""
    assert judged(Rules(languages=("cuda",)), subject(), kernels(("rms_k", 1.0))).startswith("100 % of GPU time is in Triton")


def test_libraries_have_a_rule_of_their_own() -> None:
    found = kernels(("rms_k", 0.6), (FILL, 0.4))
    assert judged(Rules(languages=("triton",)), subject(), found) == ""
    assert "library kernels have 40 % of GPU time" in judged(Rules(languages=("triton",), library_kernels="forbidden"), subject(), found)


def test_a_prepare_beside_the_entry() -> None:
    for text in (b"def prepare(w):\n    return w\n", b"prepare = lambda w: w\n", b"from helper import pack as prepare\n"):
        assert "defines `prepare`" in judged(Rules(prepare="forbidden"), subject(source=text))
        assert judged(Rules(), subject(source=text)) == ""
    for text in (
        b"# prepare(x)\ndef prepared(x):\n    return x\n",
        b"def kernel(x):\n    prepare = x\n    return prepare\n",
        b"def prepare(:\n",
    ):
        assert judged(Rules(prepare="forbidden"), subject(source=text)) == ""


# --------------------------------------------------------------------------------------------- through the judge


def test_a_broken_rule_is_the_verdict(stands: Callable[..., Stand], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plans that the judge captured reach the rules; a plan that keeps a block is the verdict."""
    stateful, seen = rules._stateful, list[int]()

    def with_block(ruled: Rules, plans: Sequence[Plan]) -> Failure | None:
        seen.append(len(plans))
        return stateful(ruled, [replace(plan, blocks=(Block(16384, b"x"),)) for plan in plans])

    monkeypatch.setattr(rules, "_stateful", with_block)
    begin = stands(gpu_task(tmp_path, rules=Rules(no_state=True))).begin()
    assert (begin.verdict.reason, begin.verdict.rungs[-1].name) == (Reason.RULE, "rules")
    assert begin.verdict.detail.startswith("keeps 1 bytes of device memory")
    assert seen == [2]  # both cases
