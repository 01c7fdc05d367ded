"""Prototypes as people write them."""

from __future__ import annotations

import pytest

from keepfast.errors import TaskError
from keepfast.task.cproto import aliases_of, blank, defined, find

TEXT = r"""
#define BODY(x) { \
    void in_macro(int a) { } \
}
// void in_comment(int a) { }
/* void in_comment2(int a) { } */
static const char *text = "void in_text(int a) { }";
void declared_only(float *x, int n);
extern int other;
struct S { int a; void (*call)(int); };
enum { A, B };
int array[] = { 1, 2 };

extern __attribute__((noinline, aligned(16))) __attribute__((target("avx2"))) void
multi_line(
    const float *restrict x, /* the input */
    float * __restrict__ y, // the output, n
    const unsigned long long n
)
{
    if (n) { y[0] = x[0]; }
    for (;;) { break; }
    char c = '{';
}
static inline double reduce(const double x[], size_t n, int stride) { return x[0] + n * stride; }
void fixed(float a[static 4], const float (*b)[8], double c[2][3], unsigned u, long int l, short unsigned s) { }
void none(void) { }
void empty() { }
#ifdef __cplusplus
extern "C" {
#endif
signed char *pointer(int8_t *p, _Bool flag, void *any, const char *name) { return p; }
void callback(float *x, void (*f)(float)) { }
void unnamed(float *, int n) { }
void words(float *__restrict x, MY_TYPE *z, struct S *s) { }
unsigned long old_style(start, buffer, length)
    unsigned long start;
    const unsigned char *buffer, *end;
    unsigned length;
{ return start; }
static int old_style_too(a, b, c) float a[4], *b; { return c; }
#ifdef __cplusplus
}
#endif
"""


def types(symbol: str) -> list[tuple[str, str, str]]:
    return [(p.name, p.type.text, p.type.dtype) for p in find(TEXT, symbol).parameters]


def test_defined() -> None:
    names = ("multi_line", "reduce", "fixed", "none", "empty", "pointer", "callback", "unnamed", "words", "old_style", "old_style_too")
    assert defined(TEXT) == names


def test_over_several_lines() -> None:
    found = find(TEXT, "multi_line")
    assert types("multi_line") == [
        ("x", "const float *", "float32"),
        ("y", "float *", "float32"),
        ("n", "const unsigned long long", "uint64"),
    ]
    assert (found.returns.base, found.returns.pointers) == ("void", 0)
    assert TEXT[found.at :].startswith("multi_line(\n    const float *restrict x")


def test_static_with_array_notation() -> None:
    found = find(TEXT, "reduce")
    assert found.returns.dtype == "float64"
    assert types("reduce") == [("x", "const double *", "float64"), ("n", "size_t", "uint64"), ("stride", "int", "int32")]


def test_arrays_of_arrays_and_integers() -> None:
    assert types("fixed") == [
        ("a", "float *", "float32"),
        ("b", "const float *", "float32"),
        ("c", "double *", "float64"),
        ("u", "unsigned", "uint32"),
        ("l", "long int", "int64"),
        ("s", "short unsigned", "uint16"),
    ]
    assert [p.type.array for p in find(TEXT, "fixed").parameters] == [False, True, True, False, False, False]


def test_other_types() -> None:
    assert types("none") == types("empty") == []
    assert types("pointer")[:2] == [("p", "int8_t *", "int8"), ("flag", "_Bool", "bool")]
    assert types("pointer")[2:] == [("any", "void *", ""), ("name", "const char *", "int8")]
    assert find(TEXT, "pointer").returns.text == "signed char *"
    assert types("words") == [("x", "float *", "float32"), ("z", "MY_TYPE *", ""), ("s", "struct S *", "")]


def test_old_style_definitions() -> None:
    assert types("old_style") == [
        ("start", "unsigned long", "uint64"),
        ("buffer", "const unsigned char *", "uint8"),
        ("length", "unsigned", "uint32"),
    ]
    assert find(TEXT, "old_style").returns.text == "unsigned long"
    assert types("old_style_too") == [("a", "float *", "float32"), ("b", "float *", "float32"), ("c", "int", "int32")]
    assert find(TEXT, "old_style_too").returns.text == "int"


@pytest.mark.parametrize("symbol", ["callback", "unnamed"])
def test_what_cannot_be_read(symbol: str) -> None:
    with pytest.raises(TaskError, match="cannot be read"):
        find(TEXT, symbol)


@pytest.mark.parametrize("symbol", ["in_macro", "in_comment", "in_comment2", "in_text", "declared_only", "call", "if"])
def test_what_is_no_definition(symbol: str) -> None:
    with pytest.raises(TaskError, match=f"no function `{symbol}` is defined"):
        find(TEXT, symbol)


def test_nearest() -> None:
    with pytest.raises(TaskError, match=r"Did you mean `reduce`\?"):
        find(TEXT, "reduse")
    with pytest.raises(TaskError) as caught:
        find("", "f")
    assert caught.value.next_step == "No function is defined there"


def test_aliases() -> None:
    text = "typedef float real;\ntypedef real /* why */ scalar, *vector;\ntypedef const vector row;\ntypedef struct S T;\n"
    text += "typedef const double *__restrict table;\ntypedef float lanes __attribute__((vector_size(16)));\ntypedef int (*call)(int);\n"
    text += "typedef void *any;\n"
    text += "typedef unsigned long int size_t; typedef struct S *handle; using whole = long;"
    aliases = aliases_of(text)
    assert set(aliases) == {"real", "scalar", "vector", "row", "table", "any", "size_t", "handle", "whole"}
    inside = "scalar *A, const real *B, vector C, const vector D, row E, table F, any G, size_t H, vector *I, handle J, whole K, T *L"
    found = [(p.type.text, p.type.dtype) for p in find(f"void f({inside}) {{ }}", "f", aliases).parameters]
    assert [t for t, _ in found[:6]] == ["float *", "const float *", "float *", "float *", "float *", "const double *"]
    assert [t for _, t in found[:6]] == [*["float32"] * 5, "float64"]
    assert found[6:] == [("void *", ""), ("size_t", "uint64"), ("float **", "float32"), ("struct S *", ""), ("long", "int64"), ("T *", "")]


def test_blank_keeps_places() -> None:
    assert blank('a /* b\n */ "c" d // e') == "a     \n        d     "


@pytest.mark.parametrize(
    "text",
    [
        "void f(int a",
        "void f(int a) {",
        "{{{{",
        "/* ",
        '"',
        "#define \\\n",
        "}",
        "void f(int a) { /* }",
        "int f(a) int",
        "f(a) ;;{",
        "int f(a, b) int (*a)(); {",
    ],
)
def test_broken_text_is_no_trouble(text: str) -> None:
    assert set(defined(text)) <= {"f"}
