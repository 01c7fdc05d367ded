"""Row softmax in C in many shapes that all compute the same: a shape is a value, `source(shape)` its text.

The three loops over a row's elements, where nearly all time goes, are the same instructions in every shape. What differs is where they
lie and what stands around them, once a row or once a call. An `Extra` computes one row in twenty a second time: 21 rows of work for
20. It is the only thing here that costs time. Must not know judges.
"""

from __future__ import annotations

import re

from msgspec import Struct

SHARE = 20  # one extra row for so many
FUNCTIONS = ("largest", "exponentials", "scale", "row", "rows")
HEAD = """\
// row softmax with an exponential of its own
#include <stdint.h>
#include <string.h>

#include "keepfast.h"

static float largest(const float *x, int64_t n);
static double exponentials(const float *x, float *y, int64_t n, float max);
static void scale(float *y, int64_t n, float factor);
static void row(const float *x, float *y, int64_t n);
static void rows(const float *x, float *y, int64_t m, int64_t n);

static inline float power(float x) // e to the x, for x not above 0
{
    if (x < -87.0f) return 0.0f;
    float shifted = x * 1.44269504f + 12582912.0f, whole = shifted - 12582912.0f;
    float f = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
    float p = 1.3888889e-3f;
    p = p * f + 8.3333333e-3f;
    p = p * f + 4.1666667e-2f;
    p = p * f + 1.6666667e-1f;
    p = p * f + 0.5f;
    p = p * f + 1.0f;
    p = p * f + 1.0f;
    uint32_t bits = (uint32_t)((int32_t)whole + 127) << 23;
    float times;
    memcpy(&times, &bits, sizeof times);
    return p * times;
}
"""
HOT = {
    "largest": """\
static float largest(const float *x, int64_t n)
{
    float max = x[0];
    for (int64_t j = 1; j < n; j++)
        if (x[j] > max) max = x[j];
    return max;
}
""",
    "exponentials": """\
static double exponentials(const float *x, float *y, int64_t n, float max)
{
    double sum = 0.0;
    for (int64_t j = 0; j < n; j++) {
        y[j] = power(x[j] - max);
        sum += y[j];
    }
    return sum;
}
""",
    "scale": """\
static void scale(float *y, int64_t n, float factor)
{
    for (int64_t j = 0; j < n; j++)
        y[j] *= factor;
}
""",
}
# What is done once a row, in place of `...` in `static void row(const float *x, float *y, int64_t n) {...}`.
ROWS = {
    "plain": """
    float max = largest(x, n);
    double sum = exponentials(x, y, n, max);
    scale(y, n, (float)(1.0 / sum));""",
    "nested": """
    scale(y, n, (float)(1.0 / exponentials(x, y, n, largest(x, n))));""",
    "temporaries": """
    const float *from = x;
    float *to = y, top = largest(from, n), factor;
    double total = exponentials(from, to, n, top);
    factor = (float)(1.0 / total);
    scale(to, n, factor);""",
    "sum": """
    double sum = exponentials(x, y, n, largest(x, n));
    scale(y, n, (float)(2.0 / (sum + sum)));""",
    "doubled": """
    double sum = exponentials(x, y, n, largest(x, n)) * 2.0;
    scale(y, n, (float)(2.0 / sum));""",
    "half": """
    double sum = 0.5 * exponentials(x, y, n, largest(x, n));
    scale(y, n, (float)(0.5 / sum));""",
    "negative": """
    double sum = -exponentials(x, y, n, largest(x, n));
    scale(y, n, (float)(-1.0 / sum));""",
    "late": """
    float factor = 1.0f, max = largest(x, n);
    double sum = exponentials(x, y, n, max);
    factor = (float)(factor / sum);
    scale(y, n, factor);""",
    "times": """
    double sum = exponentials(x, y, n, largest(x, n)) * FACTOR;
    scale(y, n, (float)(FACTOR / sum));""",
    "over": """
    double share = exponentials(x, y, n, largest(x, n)) / FACTOR;
    scale(y, n, (float)(1.0 / FACTOR / share));""",
    "guarded": """
    if (n <= 0) return;
    double sum = exponentials(x, y, n, largest(x, n));
    if (sum > 0.0) scale(y, n, (float)(1.0 / sum));""",
}
# How the row of number i is handed to row().
ADDRESSES = {
    "index": "row(x + i * n, y + i * n, n);",
    "reversed": "row(x + n * i, y + n * i, n);",
    "subscript": "row(&x[i * n], &y[i * n], n);",
    "offset": "int64_t at = i * n; row(x + at, y + at, n);",
    "bytes": "row((const float *)((const char *)x + 4 * i * n), (float *)((char *)y + 4 * i * n), n);",
    "shifted": "int64_t at = (i * n) << 2; row((const float *)((const char *)x + at), (float *)((char *)y + at), n);",
    "tilted": "int64_t at = (i + NUMBER) * n - NUMBER * n; row(x + at, y + at, n);",
    "before": "int64_t back = NUMBER * n, at = (i + NUMBER) * n; row(x - back + at, y - back + at, n);",
    "distance": "const float *from = x + i * n; row(from, y + (from - x), n);",
}
# The loop over rows; `%s` is one turn.
WALKS = {
    "for": """
    for (int64_t i = 0; i < m; i++) { %s }""",
    "while": """
    int64_t i = 0;
    while (i < m) { %s i++; }""",
    "do": """
    int64_t i = 0;
    if (m > 0) do { %s } while (++i < m);""",
    "unequal": """
    for (int64_t i = 0; i != m; ++i) { %s }""",
    "unsigned": """
    for (uint64_t k = 0; k < (uint64_t)m; k++) { int64_t i = (int64_t)k; %s }""",
    "left": """
    for (int64_t left = m; left > 0; left--) { int64_t i = m - left; %s }""",
    "halves": """
    for (int64_t half = 0; half < 2; half++) {
        int64_t end = half ? m : m / 2;
        for (int64_t i = half ? m / 2 : 0; i < end; i++) { %s }
    }""",
    "blocks": """
    for (int64_t b = 0; b < m; b += NUMBER)
        for (int64_t i = b; i < b + NUMBER && i < m; i++) { %s }""",
    "goto": """
    int64_t i = 0;
next:
    if (i < m) {
        { %s }
        i++;
        goto next;
    }""",
    "ends": """
    int64_t i = 0, end = m;
    for (;;) { if (i == end) break; %s i += 1; }""",
}
ENTRIES = {
    "plain": """
    rows(x, out, m, n);""",
    "empty": """
    if (m == 0 || n == 0) return 0;
    rows(x, out, m, n);""",
    "negative": """
    if (m < 0) return 1;
    if (n < 0) return 2;
    rows(x, out, m, n);""",
    "barrier": """
    __asm__ volatile("" ::: "memory");
    rows(x, out, m, n);
    __asm__ volatile("" ::: "memory");""",
    "pointer": """
    void (*volatile work)(const float *, float *, int64_t, int64_t) = rows;
    work(x, out, m, n);""",
    "pieces": """
    int64_t first = m / NUMBER, at = first * n;
    rows(x, out, first, n);
    rows(x + at, out + at, m - first, n);""",
    "limit": """
    if (m > (int64_t)NUMBER << 40) return NUMBER;
    rows(x, out, m, n);""",
}


class Extra(Struct, frozen=True):
    """Which rows are computed again: one in every twenty turns of the loop (`turn`), or all before, amid or after the rows."""

    place: str  # turn | first | middle | last
    turn: int  # 0 to 19: in which of twenty turns; elsewhere: which rows
    into: str  # spare: a row of its own; out: over the result that is there or comes


class Shape(Struct, frozen=True):
    order: tuple[str, ...] = FUNCTIONS
    gaps: tuple[str, ...] = ("",) * 6  # text before each function, in order, and before the entry
    marks: tuple[tuple[str, str], ...] = ()  # function, attributes
    row: str = "plain"
    address: str = "index"
    walk: str = "for"
    entry: str = "plain"
    number: int = 8  # size of a block, of a part, a shift, the exponent of a factor
    extra: Extra | None = None


def source(shape: Shape) -> str:
    """The kernel's source."""
    marks = dict(shape.marks)
    bodies = {**HOT, "row": _row(shape), "rows": _rows(shape)}
    parts = [HEAD, _spare(shape)]
    for name, gap in zip(shape.order, shape.gaps, strict=False):
        attributes = ", ".join(mark for mark in ("noipa" if name in HOT else "", marks.get(name, "")) if mark)
        parts += [gap, (f"__attribute__(({attributes}))\n" if attributes else "") + bodies[name]]
    opening = "int kernel(const float *x, float *out, int64_t m, int64_t n, void *stream)\n{\n    (void)stream;"
    parts += [shape.gaps[-1], f"{opening}{ENTRIES[shape.entry]}\n    return 0;\n}}\n"]
    numbered = {"NUMBER": str(shape.number), "FACTOR": f"{2.0**shape.number:.1f}"}
    return re.sub("NUMBER|FACTOR", lambda word: numbered[word[0]], "\n".join(part for part in parts if part))


def _row(shape: Shape) -> str:
    return f"static void row(const float *x, float *y, int64_t n)\n{{{ROWS[shape.row]}\n}}\n"


def _spare(shape: Shape) -> str:
    return "__attribute__((used)) static float spare[8192];\n" if shape.extra and shape.extra.into == "spare" else ""


def _rows(shape: Shape) -> str:
    before, turn, after = _again(shape.extra) if shape.extra else ("", "", "")
    walk = WALKS[shape.walk] % f"{ADDRESSES[shape.address]} {turn}".strip()
    return f"static void rows(const float *x, float *y, int64_t m, int64_t n)\n{{{before}{walk}{after}\n}}\n"


def _again(extra: Extra) -> tuple[str, str, str]:
    """Text before the loop over rows, in each turn, and after it."""
    if extra.place == "turn":
        to = "spare" if extra.into == "spare" else "y + i * n"
        return f"\n    int64_t turn = {extra.turn};", f"if (++turn >= {SHARE}) {{ turn = 0; row(x + i * n, {to}, n); }}", ""
    to = "spare" if extra.into == "spare" else "y + again * n"
    loop = f"""
    for (int64_t e = 0; e < m / {SHARE}; e++) {{
        int64_t again = (e * {SHARE} + {extra.turn}) % m;
        row(x + again * n, {to}, n);
    }}"""
    return {"first": (loop, "", ""), "middle": ("", f"if (i == m / 2) {{{loop}\n    }}", ""), "last": ("", "", loop)}[extra.place]


def computed(shape: Shape, rows: int) -> int:
    """Rows that a call on `rows` rows computes, the extra ones counted."""
    if shape.extra is None:
        return rows
    return rows + ((rows + shape.extra.turn) // SHARE if shape.extra.place == "turn" else rows // SHARE)
