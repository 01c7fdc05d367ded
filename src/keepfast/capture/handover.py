"""What a capture hands over of its Triton kernels beside a plan: the IR they were compiled from and the options, as plain data.

Written by the untrusted capture, read by the judge, which compiles it again (`capture/recompile`): nothing in it is believed, so a lie
makes another image and no more. Reading is strict and capped. Must not know cases, origins or verdicts.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from keepfast.gpu.plan import MAX_IMAGES, Plan

MAX_TEXT = 2 << 20  # bytes of the IR of a kernel; a long one has 40 KB
MAX_BYTES = 8 << 20  # of all of a plan
WARPS = re.compile(rb'"ttg\.num-warps" = (\d{1,3})\b')


class Options(Struct, frozen=True, array_like=True):
    """What Triton's compiler is told beside the IR. Others have done their work when there is IR, or say how a kernel is launched."""

    num_warps: Annotated[int, Meta(ge=1, le=64)]
    num_ctas: Annotated[int, Meta(ge=1, le=64)]
    num_stages: Annotated[int, Meta(ge=0, le=64)]
    maxnreg: Annotated[int, Meta(ge=1, le=1024)] | None
    ptx_version: Annotated[int, Meta(ge=1, le=999)] | None
    ptx_options: Annotated[str, Meta(max_length=200)] | None
    enable_fp_fusion: bool
    enable_reflect_ftz: bool


class Source(Struct, frozen=True, array_like=True):
    """What an image is said to be made of. `image`: sha256 of it."""

    image: Annotated[bytes, Meta(min_length=32, max_length=32)]
    form: Literal["ttir", "ttgir"]  # ttgir: of Gluon, which begins there
    text: Annotated[bytes, Meta(max_length=MAX_TEXT)]
    options: Options


Sources = Annotated[tuple[Source, ...], Meta(max_length=MAX_IMAGES)]


class Unreadable(Exception):
    """Why this is no hand-over, as a sentence."""


def encode(sources: tuple[Source, ...]) -> bytes:
    """As many as fit, in their order; b"" for none."""
    kept, size = list[Source](), 0
    for source in sources[:MAX_IMAGES]:
        size += len(source.text) + 512
        if size <= MAX_BYTES:
            kept.append(source)
    return msgspec.msgpack.encode(kept) if kept else b""


def decode(data: bytes) -> tuple[Source, ...]:
    """Unreadable for anything else."""
    if not data:
        return ()
    if len(data) > MAX_BYTES:
        raise Unreadable(f"{len(data)} bytes of IR; it may have {MAX_BYTES}")
    try:
        found: tuple[Source, ...] = msgspec.msgpack.decode(data, type=Sources)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Unreadable(f"no IR: {error}") from None
    return found


# --------------------------------------------------------------------------------------------- inside the worker


class Seen:
    """Every kernel that Triton compiles, or finds compiled, from the moment this is made: by a call, by hand, for a library."""

    def __init__(self) -> None:
        self.kernels: list[Any] = []
        compiler = sys.modules.get("triton.compiler")
        kind = getattr(compiler, "CompiledKernel", None)
        if isinstance(kind, type):
            self._watch(kind)

    def _watch(self, kind: Any) -> None:
        make = kind.__init__

        def kept(kernel: Any, *arguments: Any, **named: Any) -> None:
            make(kernel, *arguments, **named)
            self.kernels.append(kernel)

        kind.__init__ = kept

    def of(self, plan: Plan) -> bytes:
        """What is handed over beside `plan`: of each of its images that Triton made. Where none is the same, one of the same name: the
        judge can then say what differs."""
        made = {digest: kernel for kernel in self.kernels if (digest := _digest(kernel))}
        named = {str(getattr(kernel, "name", "")): kernel for kernel in self.kernels}
        found = list[Source]()
        for index, name in dict.fromkeys((kernel.image, kernel.name) for kernel in plan.kernels()):
            digest = hashlib.sha256(plan.images[index]).digest()
            if kernel := made.get(digest) or named.get(name):
                found += _source(digest, kernel)
        return encode(tuple(found))


def _digest(kernel: Any) -> bytes:
    image = getattr(kernel, "kernel", None)
    return hashlib.sha256(image).digest() if isinstance(image, bytes) else b""


def _source(digest: bytes, kernel: Any) -> Iterator[Source]:
    """Of a kernel whose IR was not kept (TRITON_STORE_BINARY_ONLY), or of a Triton of another kind: nothing."""
    try:
        form: Literal["ttir", "ttgir"] = "ttir" if "ttir" in kernel.asm else "ttgir"
        yield Source(digest, form, kernel.asm[form].encode(), _options(kernel))
    except (AttributeError, KeyError, TypeError, ValueError):
        return


def _options(kernel: Any) -> Options:
    said, begun = kernel.metadata, WARPS.search(kernel.asm.get("ttgir", "").encode())
    return Options(
        num_warps=int(begun[1]) if begun else said.num_warps,  # with warps that specialise the metadata count those, too
        num_ctas=said.num_ctas,
        num_stages=said.num_stages,
        maxnreg=said.maxnreg,
        ptx_version=said.ptx_version,
        ptx_options=getattr(said, "ptx_options", None),
        enable_fp_fusion=said.enable_fp_fusion,
        enable_reflect_ftz=getattr(said, "enable_reflect_ftz", True),
    )
