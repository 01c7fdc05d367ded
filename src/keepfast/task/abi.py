"""The C ABI of a task: the prototype of the entry, and the shim through which the runner calls it.

    int kernel(arguments in schema order, outputs..., int64_t axes..., void *stream)

Must not know compilers or processes. Element types come from outside, since inputs() decides them.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from keepfast.dtypes import by_name
from keepfast.model import Signature, Task


class Word(Struct, frozen=True):
    """One argument of the entry: a 64-bit word of the call table."""

    name: str
    kind: str  # tensor | int | float | bool | str | axis | stream
    optional: bool = False
    written: bool = False


_SCALAR = {"int": "int64_t {}", "float": "double {}", "bool": "int {}", "str": "const char *{}", "axis": "int64_t {}", "stream": "void *{}"}
_OPTIONAL = {"int": "const int64_t *{}", "float": "const double *{}", "bool": "const int *{}", "str": "const char *{}"}
_HEADER = """/* Written by keepfast from the signature; changes here are lost.
   {text} */
#ifndef KEEPFAST_H
#define KEEPFAST_H

#include <stddef.h>
#include <stdint.h>

#define KEEPFAST_THREADS {threads}

#ifdef __cplusplus
extern "C" {{
#endif

{prototype};

#ifdef __cplusplus
}}
#endif

#endif
"""
_SHIM = """/* Written by keepfast: unpacks 64-bit words into the arguments of the entry. */
#include "keepfast.h"
#include <string.h>

static inline double keepfast_double(uint64_t word) {{
    double value;
    memcpy(&value, &word, sizeof value);
    return value;
}}

#ifdef __cplusplus
extern "C"
#endif
__attribute__((visibility("default"))) int keepfast_call(const uint64_t *w) {{
    (void)keepfast_double;
    return {symbol}({values});
}}
"""


def layout(task: Task) -> tuple[Word, ...]:
    """The words of a call in ABI order: arguments, outputs, axes, stream."""
    return layout_of(task.signature, task.axes)


def layout_of(signature: Signature, axes: tuple[str, ...]) -> tuple[Word, ...]:
    """The same, before there is a whole task."""
    return (
        *(Word(a.name, a.kind, a.optional, a.written) for a in signature.args),
        *(Word(r.name, "tensor", written=True) for r in signature.outputs),
        *(Word(axis, "axis") for axis in axes),
        Word("stream", "stream"),
    )


def words(task: Task) -> tuple[str, ...]:
    """Names in ABI order: arguments, outputs, axes, "stream"."""
    return tuple(word.name for word in layout(task))


def prototype(task: Task, dtypes: Mapping[str, str]) -> str:
    """The C declaration of the entry, without a semicolon. A tensor that `dtypes` does not name is a pointer to void."""
    return declaration(layout(task), task.entry_symbol, dtypes)


def declaration(layout: tuple[Word, ...], symbol: str, dtypes: Mapping[str, str]) -> str:
    return f"int {symbol}(" + ", ".join(_declare(w, dtypes).format(w.name) for w in layout) + ")"


def header(task: Task, dtypes: Mapping[str, str]) -> str:
    """The text of keepfast.h. `dtypes` maps tensor names to names of `keepfast.dtypes`."""
    text = " ".join(task.signature.text.split()).replace("*/", "* /").replace("/*", "/ *")
    return _HEADER.format(text=text, threads=task.threads, prototype=prototype(task, dtypes))


def shim(task: Task, dtypes: Mapping[str, str]) -> str:
    """C source of `int keepfast_call(const uint64_t *w)`: pointers and integers as they are, doubles by their bits."""
    values = (_unpack(i, w, dtypes) for i, w in enumerate(layout(task)))
    return _SHIM.format(symbol=task.entry_symbol, values=", ".join(values))


def _declare(word: Word, dtypes: Mapping[str, str]) -> str:
    """A declaration with `{}` for the name."""
    if word.kind == "tensor":
        ctype = by_name(dtypes[word.name]).ctype if word.name in dtypes else "void"
        return f"{'' if word.written else 'const '}{ctype} *{{}}"
    return _OPTIONAL[word.kind] if word.optional else _SCALAR[word.kind]


def _unpack(index: int, word: Word, dtypes: Mapping[str, str]) -> str:
    declared = _declare(word, dtypes).format("").strip()
    if declared.endswith("*"):
        return f"({declared})(uintptr_t)w[{index}]"
    return {"float": f"keepfast_double(w[{index}])", "bool": f"w[{index}] != 0"}.get(word.kind, f"(int64_t)w[{index}]")
