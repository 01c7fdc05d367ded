"""What a captured folder says: the calls of a function by what they were called with, and a profile of the contents. Data only."""

from __future__ import annotations

from msgspec import Struct

SCHEMA = "keepfast.captured/1"
LEVELS = (0.0, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 1.0)


class Target(Struct, frozen=True):
    """`kind`: function, file or op. `module`: dotted, or the namespace of an operator; `path`: absolute, of a file; `name`: of the
    function, CLASS.METHOD, or the operator."""

    kind: str
    name: str
    module: str = ""
    path: str = ""

    @property
    def text(self) -> str:
        if self.kind == "op":
            return f"torch.ops.{self.module}.{self.name}"
        return f"{self.module or self.path}:{self.name}"


class Value(Struct, frozen=True, omit_defaults=True):
    """An argument of a call, or something returned. `kind`: torch, numpy, int, float, bool, str, none, list, other. Strides in elements."""

    kind: str
    name: str = ""
    shape: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    dtype: str = ""
    device: str = ""
    text: str = ""  # a number or a text as Python writes it, or the name of a type
    items: tuple[Value, ...] = ()
    argument: str = ""  # of something returned: the argument that it is, or shares its memory with

    @property
    def is_tensor(self) -> bool:
        return self.kind in ("torch", "numpy")


class Call(Struct, frozen=True):
    """Calls with the same shapes, strides, element types and numbers. `seen`: looked at; `estimate`: calls that these stand for."""

    values: tuple[Value, ...]
    seen: int
    estimate: int


class Part(Struct, frozen=True, omit_defaults=True):
    """A tensor in a file of contents: its elements in order, at byte `at`. Not `whole`: every so-manieth element."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    at: int
    nbytes: int
    place: int = -1  # in a list
    whole: bool = True
    kind: str = "torch"


class Sample(Struct, frozen=True, omit_defaults=True):
    """The contents of one call: `file` in samples/, `call` the index of its kind. `seen_after`: whether what follows was looked at."""

    file: str
    sha256: str
    nbytes: int
    call: int
    parts: tuple[Part, ...]
    seen_after: bool = False
    written: tuple[str, ...] = ()
    returned: tuple[Value, ...] = ()


class Profile(Struct, frozen=True, omit_defaults=True):
    """Contents of one tensor argument over all samples. Mean to quantiles are of finite numbers; shares are of all elements. `outliers`:
    farther from the median than 10 times the middle half is wide. Whole numbers also: `sorted` and `unique` are shares of rows, `top` the
    share of the commonest value, `distinct` how many values there are."""

    name: str
    dtype: str
    elements: int
    samples: int
    whole: bool
    low: float
    high: float
    mean: float
    std: float
    quantiles: tuple[float, ...]  # at LEVELS
    zeros: float = 0.0
    nan: float = 0.0
    positive_infinity: float = 0.0
    negative_infinity: float = 0.0
    outliers: float = 0.0
    sorted: float = 0.0
    unique: float = 0.0
    top: float = 0.0
    distinct: int = 0


class Captured(Struct, frozen=True, kw_only=True):
    """captured.json. `calls` is exact but for calls from inside the hook; `looked`: of these, those whose arguments were looked at;
    `in_graphs`: of these, while a CUDA graph was captured, whose replays nobody sees; `traced`: by a compiler, not counted in `looked`;
    `unlisted`: calls of kinds that were given up for want of room."""

    schema: str
    target: Target
    command: tuple[str, ...]
    exit_code: int
    processes: int
    calls: int
    looked: int
    in_graphs: int
    traced: int
    unlisted: int
    errors: int
    file: str  # where the function stands
    line: int
    operator: str  # its schema, of an operator
    kinds: tuple[Call, ...]
    samples: tuple[Sample, ...]
    profiles: tuple[Profile, ...]
    versions: dict[str, str]
    notes: tuple[str, ...] = ()
