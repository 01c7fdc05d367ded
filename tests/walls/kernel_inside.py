"""A Triton kernel that is compiled for a card that need not be there."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.build import compile_module_from_src

STUB = """
#include <Python.h>
static PyObject *answer(PyObject *self, PyObject *nothing) { return PyLong_FromLong(42); }
static PyMethodDef methods[] = {{"answer", answer, METH_NOARGS, ""}, {0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "stub", 0, -1, methods};
PyMODINIT_FUNC PyInit_stub(void) { return PyModule_Create(&module); }
"""


@triton.jit
def double(x, y, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, 2.0 * tl.load(x + at, mask=at < n), mask=at < n)


def cubin() -> bytes:
    source = ASTSource(fn=double, signature={"x": "*fp32", "y": "*fp32", "n": "i32", "BLOCK": "constexpr"}, constexprs={"BLOCK": 128})
    image: bytes = triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["cubin"]
    return image


def stub() -> int:
    """A Python module in C as Triton makes one for each kernel: compiled by gcc, loaded from the cache."""
    answer: int = compile_module_from_src(STUB, "stub").answer()
    return answer
