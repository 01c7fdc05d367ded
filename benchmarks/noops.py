"""Changes that do nothing, drawn from a seed, and a champion that does a counted twentieth too much.

    order       functions in another order
    dead        functions that nobody calls
    padding     bytes between functions
    aligned     functions on other boundaries
    tables      constants that nobody reads
    walk        the loop over rows: while, do, halves, blocks, unsigned, goto
    address     where a row begins: index, offset, bytes, shifted
    expression  what is done once a row: reversed operands, other factors, other temporaries
    inlining    noinline, cold and flatten on what runs once a row or call
    section     functions in sections of their own
    entry       checks and detours once a call
    mixture     three of these together

Not every draw changes the code: the compiler sees through many. Who uses this compares hashes and draws again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

from msgspec.structs import replace
from shapes import ADDRESSES, ENTRIES, FUNCTIONS, ROWS, SHARE, WALKS, Extra, Shape

USED = "__attribute__((used)) static"
PADS = (1, 7, 16, 33, 64, 100, 255, 512, 1000, 4000)  # bytes
BOUNDARIES = (128, 256, 512, 1024, 2048, 4096)
SECTIONS = (".text", ".text.hot", ".text.unlikely", ".text.startup")
INLINING = ("noinline", "noinline, cold", "noinline, hot", "noipa", "flatten")


def change(kind: str, chance: Random) -> Shape:
    """A shape that differs from the plain one by this kind of change; `mixture` takes three kinds."""
    shape = Shape()
    for name in chance.sample(tuple(CHANGES), 3) if kind == "mixture" else (kind,):
        shape = CHANGES[name](chance, shape)
    return shape


def extra(chance: Random) -> Extra:
    place = chance.choice(("turn", "turn", "turn", "first", "middle", "last"))
    return Extra(place, chance.randrange(SHARE), chance.choice(("spare", "out")))


def _other(chance: Random, names: dict[str, str]) -> str:
    """Any but the first, which is the plain one."""
    return chance.choice(tuple(names)[1:])


def _gap(chance: Random, shape: Shape, text: str) -> Shape:
    at = chance.randrange(len(shape.gaps))
    return replace(shape, gaps=tuple(gap + text if k == at else gap for k, gap in enumerate(shape.gaps)))


def _mark(shape: Shape, name: str, mark: str) -> Shape:
    marks = dict(shape.marks)
    marks[name] = f"{marks[name]}, {mark}" if name in marks else mark
    return replace(shape, marks=tuple(marks.items()))


def _order(chance: Random, shape: Shape) -> Shape:
    return replace(shape, order=tuple(chance.sample(FUNCTIONS, len(FUNCTIONS))))


def _dead(chance: Random, shape: Shape) -> Shape:
    for _ in range(chance.randint(1, 4)):
        steps = (f"    a = (a << {chance.randint(1, 9)}) ^ (a + {chance.randint(1, 9999)});\n" for _ in range(chance.randint(1, 30)))
        shape = _gap(chance, shape, f"{USED} int64_t dead_{chance.getrandbits(32):x}(int64_t a)\n{{\n{''.join(steps)}    return a;\n}}\n")
    return shape


def _padding(chance: Random, shape: Shape) -> Shape:
    for _ in range(chance.randint(1, 3)):
        body = f'    __asm__ volatile(".skip {chance.choice(PADS)}, 0x90");\n'
        shape = _gap(chance, shape, f"{USED} void gap_{chance.getrandbits(32):x}(void)\n{{\n{body}}}\n")
    return shape


def _aligned(chance: Random, shape: Shape) -> Shape:
    for name in chance.sample(FUNCTIONS, chance.randint(1, 3)):
        shape = _mark(shape, name, f"aligned({chance.choice(BOUNDARIES)})")
    return shape


def _tables(chance: Random, shape: Shape) -> Shape:
    for _ in range(chance.randint(1, 3)):
        kind, size = chance.choice(("int32_t", "const int32_t")), chance.randint(3, 3000)
        shape = _gap(chance, shape, f"{USED} {kind} table_{chance.getrandbits(32):x}[{size}] = {{{chance.randint(1, 99)}}};\n")
    return _dead(chance, shape)  # data alone would not change .text


def _walk(chance: Random, shape: Shape) -> Shape:
    return replace(shape, walk=_other(chance, WALKS), number=chance.randint(3, 60))


def _address(chance: Random, shape: Shape) -> Shape:
    return replace(_walk(chance, shape), address=_other(chance, ADDRESSES))


def _expression(chance: Random, shape: Shape) -> Shape:
    return replace(shape, row=_other(chance, ROWS), address=chance.choice(tuple(ADDRESSES)), number=chance.randint(3, 60))


def _inlining(chance: Random, shape: Shape) -> Shape:
    for name in chance.sample(("row", "rows"), chance.randint(1, 2)):
        shape = _mark(shape, name, chance.choice(INLINING))
    return _entry(chance, shape)


def _section(chance: Random, shape: Shape) -> Shape:
    for name in chance.sample(FUNCTIONS, chance.randint(1, 4)):
        shape = _mark(shape, name, f'section("{chance.choice(SECTIONS)}.{chance.getrandbits(16):x}")')
    return shape


def _entry(chance: Random, shape: Shape) -> Shape:
    return replace(shape, entry=_other(chance, ENTRIES), number=chance.randint(3, 60))


CHANGES: dict[str, Callable[[Random, Shape], Shape]] = {
    "order": _order,
    "dead": _dead,
    "padding": _padding,
    "aligned": _aligned,
    "tables": _tables,
    "walk": _walk,
    "address": _address,
    "expression": _expression,
    "inlining": _inlining,
    "section": _section,
    "entry": _entry,
}
KINDS = (*CHANGES, "mixture")


# --------------------------------------------------------------------------------------------- names and comments

NAMES = (*FUNCTIONS, "power", "max", "sum", "factor", "shifted", "whole", "bits", "times", "j", "i")


def renamed(text: str, chance: Random) -> str:
    """The same code under other names, with other comments and empty lines."""
    for name in NAMES:
        text = re.sub(rf"\b{name}\b", f"{chance.choice(('the', 'a', 'my'))}_{name}_{chance.getrandbits(16):x}", text)
    lines = text.splitlines()
    for _ in range(chance.randint(1, 20)):
        lines.insert(chance.randrange(len(lines) + 1), chance.choice(("", "/* faster now */", f"// see note {chance.randint(1, 99)}")))
    return "\n".join(lines) + "\n"
