"""What a worker says that its Triton images are made of: written as plain data, read strictly, whatever arrives."""

from __future__ import annotations

import hashlib
import sys
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from keepfast.capture import handover
from keepfast.capture.handover import MAX_BYTES, MAX_TEXT, Options, Seen, Source, Unreadable, decode, encode
from keepfast.gpu.plan import Kernel
from tests.gpu_records.test_plan import KERNEL, PLAN

OPTIONS = Options(4, 1, 3, None, None, None, True, True)
SOURCE = Source(hashlib.sha256(b"image").digest(), "ttir", b"module {}", OPTIONS)
SAID = {
    "num_warps": 12, "num_ctas": 1, "num_stages": 3, "maxnreg": 64, "ptx_version": None, "ptx_options": "-O2",
    "enable_fp_fusion": False, "enable_reflect_ftz": True,
}  # fmt: skip


class CompiledKernel:
    """As Triton's, as far as it is looked at."""

    def __init__(self, image: bytes, name: str = "rms_norm", **asm: str) -> None:
        self.kernel, self.name = image, name
        self.asm: dict[str, Any] = {"cubin": image, "ttgir": 'module attributes {"ttg.num-warps" = 4 : i32} {}', **asm}
        self.metadata = SimpleNamespace(**SAID)


@pytest.fixture
def kind(monkeypatch: pytest.MonkeyPatch) -> type[CompiledKernel]:
    """Triton's class, a fresh one."""
    fresh = type("CompiledKernel", (CompiledKernel,), {})
    monkeypatch.setitem(sys.modules, "triton.compiler", SimpleNamespace(CompiledKernel=fresh))  # type: ignore[arg-type]
    return fresh


def digest(image: bytes) -> bytes:
    return hashlib.sha256(image).digest()


def test_what_is_written_is_read() -> None:
    assert decode(encode((SOURCE, SOURCE))) == (SOURCE, SOURCE)
    assert encode(()) == b""
    assert decode(b"") == ()


def test_what_is_too_much_is_left_out_from_the_end() -> None:
    large = replace(SOURCE, text=b"x" * (MAX_TEXT - 512))
    data = encode((large,) * 5)
    assert len(data) <= MAX_BYTES
    assert len(decode(data)) == 4
    assert len(decode(encode((SOURCE,) * 99))) == 64


@pytest.mark.parametrize(
    "data",
    [
        b"\x00", b"x" * 40, b"\x91" * 5000, msgspec.msgpack.encode([SOURCE] * 65),
        msgspec.msgpack.encode([replace(SOURCE, image=b"short")]),
        msgspec.msgpack.encode([replace(SOURCE, form="ptx")]),  # type: ignore[arg-type]
        msgspec.msgpack.encode([replace(SOURCE, text=b"x" * (MAX_TEXT + 1))]),
        msgspec.msgpack.encode([replace(SOURCE, options=replace(OPTIONS, num_warps=0))]),
        msgspec.msgpack.encode([replace(SOURCE, options=replace(OPTIONS, ptx_options="x" * 201))]),
        b"x" * (MAX_BYTES + 1),
    ],
)  # fmt: skip
def test_what_is_no_ir_is_refused(data: bytes) -> None:
    with pytest.raises(Unreadable):
        decode(data)


def test_every_kernel_that_triton_compiles_is_seen(kind: type[CompiledKernel]) -> None:
    seen = Seen()
    kind(b"one", ttir="module {} // one")
    kind(b"of a library", "other", ttir="module {} // never launched")
    kind(PLAN.images[0], ttir="module {} // launched")
    (source,) = decode(seen.of(PLAN))
    assert (source.image, source.form, source.text) == (digest(PLAN.images[0]), "ttir", b"module {} // launched")
    # Warps of the metadata are those that Triton ended with; it begins with those of the IR.
    assert source.options == Options(4, 1, 3, 64, None, "-O2", False, True)


def test_of_an_image_that_triton_did_not_make_the_ir_of_its_name_is_said(kind: type[CompiledKernel]) -> None:
    seen = Seen()
    kind(b"another image", KERNEL.name, ttir="module {} // of the name")
    (source,) = decode(seen.of(PLAN))
    assert (source.image, source.text) == (digest(PLAN.images[0]), b"module {} // of the name")


def test_gluon_begins_at_its_own_ir(kind: type[CompiledKernel]) -> None:
    seen = Seen()
    kind(PLAN.images[0])
    (source,) = decode(seen.of(PLAN))
    assert (source.form, source.options.num_warps) == ("ttgir", 4)


def test_a_triton_of_another_kind_hands_over_nothing(kind: type[CompiledKernel], monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen()
    for odd in (kind(PLAN.images[0]), kind(PLAN.images[0]), kind(PLAN.images[0])):
        odd.asm = {"cubin": b"only"}
    vars(seen.kernels[1]).update(asm={"ttir": "module {}"}, metadata=SimpleNamespace())
    vars(seen.kernels[2]).update(kernel=None, name=None)
    assert seen.of(PLAN) == b""
    monkeypatch.setitem(sys.modules, "triton.compiler", SimpleNamespace())  # type: ignore[arg-type]
    assert Seen().of(PLAN) == b""
    monkeypatch.delitem(sys.modules, "triton.compiler")
    assert Seen().of(PLAN) == b""


def test_images_of_one_name_have_their_own_ir(kind: type[CompiledKernel]) -> None:
    seen = Seen()
    for width in ("wide", "slim"):
        kind(f"image {width} {KERNEL.name}".encode(), KERNEL.name, ttir=f"module {{}} // {width}")
    images = tuple(kernel.kernel for kernel in seen.kernels)
    nodes = tuple(replace(PLAN.nodes[0], work=replace(KERNEL, image=index)) for index in (0, 1))
    assert isinstance(nodes[1].work, Kernel)
    found = decode(seen.of(replace(PLAN, images=images, nodes=nodes)))
    assert {s.image: s.text for s in found} == {digest(images[0]): b"module {} // wide", digest(images[1]): b"module {} // slim"}
    assert handover.MAX_IMAGES == 64
