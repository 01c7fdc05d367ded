"""`keepfast init NAME --captured DIR`: a task whose cases, arguments and contents are those of a program that ran.

The folder is read as data; the function's file is read as text, as `--from` does. Nothing of either is run.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from keepfast import dtypes
from keepfast.errors import UsageError
from keepfast.harvest import decode, folder, logs
from keepfast.harvest.records import Call, Captured, Profile, Sample, Value
from keepfast.task import captured_axes, captured_draws, given, torch_texts
from keepfast.task.captured_axes import Chosen, Solved
from keepfast.task.captured_draws import Drawing, Stored
from keepfast.task.found import Found, Returned
from keepfast.task.given import Cases, Drawn, Fixed, Given, Listed, Named
from keepfast.task.onboard_op import OpOrigin
from keepfast.task.onboard_python import PythonOrigin

MOST_CONTENTS = 64 << 20  # bytes that are copied into a task
GARBAGE = 1e9  # a number beyond it, in memory that the call writes, was left there by somebody else


class CapturedOrigin(Struct, frozen=True):
    """A captured folder, as the human types it on the command line. `rest`: what else she said of the function."""

    folder: str
    rest: PythonOrigin  # source "" when it is to be found
    group: int = 1
    contents: bool = False
    imports: tuple[str, ...] = ()


class Group(Struct, frozen=True):
    """Calls of one form: the same element types, dimensions and numbers, other sizes. `share` of all calls."""

    calls: tuple[Call, ...]
    share: float


def origin(asked: CapturedOrigin) -> OpOrigin | PythonOrigin:
    """The way to make the task that is meant, with all that was found."""
    place = Path(asked.folder)
    captured = folder.read(place)
    group, notes = _group(captured, asked.group)
    found = _found(asked, captured, group)
    found = replace(found, notes=(*notes, *captured.notes, *found.notes))
    if captured.target.kind == "op" and not asked.rest.source:
        found = replace(found, said=_for_operator(found.said))
        overload = captured.operator.partition("(")[0].partition(".")[2]
        language = asked.rest.language or "torch"
        return OpOrigin(captured.target.text, (), overload, imports=asked.imports, language=language, found=found)
    return replace(asked.rest, source=asked.rest.source or _source(captured), found=found)


def _for_operator(said: dict[str, Given]) -> dict[str, Given]:
    """Its schema knows what it writes and what it has by default."""
    plain = {n: replace(one, written=False) if isinstance(one, Drawn) else one for n, one in said.items()}
    return {name: one for name, one in plain.items() if not isinstance(one, Named) and one != Fixed(None)}


def _source(captured: Captured) -> str:
    path = captured.target.path or captured.file
    if not path.endswith(".py") or not Path(path).is_file():
        what = f"{path or 'the file of the function'} is not here"
        raise UsageError(what, where="--captured", next_step="Say where the function stands: --from FILE.py:FUNCTION")
    return f"{path}:{captured.target.name}"


# --------------------------------------------------------------------------------------------- which calls


def _group(captured: Captured, number: int) -> tuple[Group, tuple[str, ...]]:
    """The calls of the form that is meant; the commonest is 1."""
    forms: dict[tuple[object, ...], list[Call]] = {}
    for call in captured.kinds:
        if _judgeable(call):
            forms.setdefault(tuple(map(_form, call.values)), []).append(call)
    total = max(sum(c.estimate for c in captured.kinds), 1)
    groups = sorted((Group(tuple(g), sum(c.estimate for c in g) / total) for g in forms.values()), key=lambda g: -g.share)
    if not groups:
        step = "See the notes of keepfast capture, and captured.json"
        raise UsageError("no call that a task could be made of was captured", where="--captured", next_step=step)
    if not 1 <= number <= len(groups):
        raise UsageError(f"there are {len(groups)} forms of calls", where="--group", next_step=f"--group 1 to {len(groups)}")
    chosen = groups[number - 1]
    if len(groups) == 1:
        return chosen, ()
    others = "; ".join(f"{i + 1}: {_said(g, chosen)} ({g.share:.0%})" for i, g in enumerate(groups[:6]) if i != number - 1)
    return chosen, (f"{chosen.share:.0%} of the calls have this form; a task has one. Others, for --group: {others}",)


def _judgeable(call: Call) -> bool:
    """Tensors with something in them, at least one; none in NumPy, which kernels for a GPU do not take."""
    tensors = [v for v in call.values if v.is_tensor]
    return bool(tensors) and all(v.kind == "torch" and math.prod(v.shape) > 0 and decode.known(v.dtype) for v in tensors)


def _form(value: Value) -> tuple[object, ...]:
    if value.is_tensor:
        return (value.name, value.kind, value.dtype, len(value.shape))
    if value.kind == "list":
        return (value.name, "list", tuple(map(_form, value.items)))
    return (value.name, value.kind) if value.kind == "int" else (value.name, value.kind, value.text)


def _said(group: Group, chosen: Group) -> str:
    """What is different about it."""
    mine, theirs = {v.name: v for v in group.calls[0].values}, {v.name: v for v in chosen.calls[0].values}
    apart = [n for n in (*mine, *(t for t in theirs if t not in mine)) if _text(mine.get(n)) != _text(theirs.get(n))]
    return ", ".join(f"{name}={_text(mine.get(name))}" for name in apart[:3])


def _text(value: Value | None) -> str:
    if value is None:
        return "absent"
    if value.is_tensor:
        return f"{value.dtype}, {len(value.shape)} dimensions"
    return f"[{len(value.items)}]" if value.kind == "list" else ("int" if value.kind == "int" else value.text or "None")


# --------------------------------------------------------------------------------------------- sizes


def _columns(group: Group) -> dict[str, tuple[int, ...]]:
    """Every size and whole number of the calls: `x.0`, `x.1`, `k`, `shape.[0]`; over the calls."""
    found: dict[str, list[int]] = {}
    for call in group.calls:
        for value in call.values:
            for i, size in enumerate(value.shape):
                found.setdefault(f"{value.name}.{i}", []).append(size)
            for i, item in enumerate(value.items):
                if item.kind == "int":
                    found.setdefault(f"{value.name}.[{i}]", []).append(_number(item))
    return {name: tuple(values) for name, values in found.items()}


def _number(value: Value) -> int:
    try:
        return int(value.text[:20])
    except ValueError:
        raise UsageError(f"`{value.text[:40]}` of `{value.name}` is no whole number", where="--captured") from None


def _whole(group: Group) -> dict[str, tuple[int, ...]]:
    """Whole numbers that are arguments and not the same in all calls."""
    names = [v.name for v in group.calls[0].values if v.kind == "int"]
    found = {n: tuple(_number(next(v for v in call.values if v.name == n)) for call in group.calls) for n in names}
    return {name: values for name, values in found.items() if len(set(values)) > 1}


def _solved(group: Group) -> tuple[Solved, dict[str, str]]:
    """Axes; and for whole numbers that are arguments of the task, the axis that has their values."""
    columns, numbers = _columns(group), _whole(group)
    arguments = [v.name for v in group.calls[0].values]
    wanted = {next((c for c, v in columns.items() if v == values), ""): name for name, values in numbers.items()}
    shown = set(wanted.values()) - {name for column, name in wanted.items() if not column or column.partition(".")[2].startswith("[")}
    solved = captured_axes.solve(columns, {c: n for c, n in wanted.items() if n in shown}, arguments)
    named = {axis for axis, _ in solved.axes}
    extra: dict[str, str] = {}
    for name, values in numbers.items():
        if name in named:
            continue
        if min(values) < 1:
            what = f"`{name}` is {min(values)} in some calls and not in others: no axis can be below 1"
            raise UsageError(what, where="--captured", next_step="Say --from and --case by hand, with one value of it")
        extra[name] = next((axis for axis, one in solved.axes if one == values), "") or captured_axes.axis_named(name, {*arguments, *named})
    more = tuple((axis, numbers[name]) for name, axis in extra.items() if axis not in named)
    return replace(solved, axes=(*solved.axes, *more)), extra


# --------------------------------------------------------------------------------------------- all of it


class _Sheet(Struct, frozen=True):
    """A form of calls as axes, rows and cases. `row_of`: for each call its row; `extra`: arguments that are an axis."""

    solved: Solved
    extra: dict[str, str]
    rows: tuple[tuple[int, ...], ...]
    row_of: tuple[int, ...]
    chosen: Chosen

    def name(self, row: int) -> str:
        """As `task.load` names a case."""
        pairs = zip((axis for axis, _ in self.solved.axes), self.rows[row], strict=True)
        return "_".join(f"{axis}{value}" for axis, value in pairs) or "only"


def _sheet(group: Group) -> _Sheet:
    solved, extra = _solved(group)
    all_rows = [tuple(vector[i] for _, vector in solved.axes) for i in range(len(group.calls))]
    rows = tuple(dict.fromkeys(all_rows))
    row_of = tuple(rows.index(row) for row in all_rows)
    calls, sizes = [0] * len(rows), [0] * len(rows)
    for i, call in zip(row_of, group.calls, strict=True):
        calls[i] += call.estimate
        sizes[i] = max(sizes[i], logs.elements(call))
    return _Sheet(solved, extra, rows, row_of, captured_axes.choose(rows, calls, sizes))


def _found(asked: CapturedOrigin, captured: Captured, group: Group) -> Found:
    sheet = _sheet(group)
    axes = tuple(axis for axis, _ in sheet.solved.axes)
    chosen = sheet.chosen
    odd = tuple(sheet.rows[i] for i in chosen.checked)
    if asked.rest.odd:
        odd = (*odd, *given.cases((_case_text(axes, sheet.rows[0]),), asked.rest.odd).odd)
    cases = Cases(axes, tuple(sheet.rows[i] for i in chosen.timed), odd, chosen.weights)
    at = {call.values: i for i, call in enumerate(group.calls)}
    samples = tuple(replace(s, call=at[v]) for s in captured.samples if (v := captured.kinds[s.call].values) in at)
    written = {name for sample in samples for name in sample.written}
    said = {v.name: one for v in group.calls[0].values if (one := _given(v, sheet, written)) is not None}
    draws, head, notes = _draws(asked, captured, samples, (sheet, said))
    found = Found(cases, said, draws, head, returned=_returned(samples), notes=(*_notes(sheet, group, odd), *notes))
    return _with_contents(asked, found, samples, sheet) if asked.contents else found


def _case_text(axes: tuple[str, ...], row: tuple[int, ...]) -> str:
    return " ".join(f"{axis}={value}" for axis, value in zip(axes, row, strict=True))


def _given(value: Value, sheet: _Sheet, written: set[str]) -> Given | None:
    """What stands for an argument; None for one that keeps its default."""
    texts = sheet.solved.texts
    if value.is_tensor:
        kind = decode.known(value.dtype)
        assert kind is not None
        return Drawn(kind.name, tuple(texts[f"{value.name}.{i}"] for i in range(len(value.shape))), written=value.name in written)
    if value.kind == "list":
        return _listed(value, texts)
    if value.kind == "int" and value.name in {axis for axis, _ in sheet.solved.axes}:
        return None  # a size
    if value.kind == "other":
        return Named(value.text) if re.fullmatch(r"torch\.[a-z]\w*", value.text, re.ASCII) else None
    if value.kind == "none":
        return Fixed(None)
    return Fixed(_scalar(value))


def _listed(value: Value, texts: dict[str, str]) -> Given | None:
    if value.items and all(item.kind == "int" for item in value.items):
        return Listed(tuple(texts[f"{value.name}.[{i}]"] for i in range(len(value.items))))
    if any(item.is_tensor for item in value.items):
        step = "Write a function of its tensors that calls it, and capture that"
        raise UsageError(f"`{value.name}` is a list of tensors, which a signature cannot have", where="--captured", next_step=step)
    return None


def _scalar(value: Value) -> bool | int | float | str:
    try:
        if value.kind in ("int", "float"):
            return int(value.text) if value.kind == "int" else float(value.text)
    except ValueError:
        raise UsageError(f"`{value.name}` is {value.text[:40]!r}, no {value.kind}", where="--captured") from None
    return value.text == "True" if value.kind == "bool" else value.text


def _returned(samples: tuple[Sample, ...]) -> Returned | None:
    """What calls gave back, when all that were looked at afterwards agree."""
    seen = {
        Returned(len(s.returned), tuple(i for i, v in enumerate(s.returned) if v.kind == "torch" and not v.argument))
        for s in samples
        if s.seen_after
    }
    return next(iter(seen)) if len(seen) == 1 else None


def _notes(sheet: _Sheet, group: Group, odd: tuple[tuple[int, ...], ...]) -> tuple[str, ...]:
    found = []
    chosen = sheet.chosen
    if len(sheet.rows) > len(chosen.timed) + len(chosen.checked):
        found.append(
            f"{len(sheet.rows)} sizes were seen: {len(chosen.timed)} are timed and stand for those near them, {len(chosen.checked)} checked"
        )
    if not any(value % 16 for row in (*odd, *(sheet.rows[i] for i in chosen.timed)) for value in row if value > 1):
        axes = " ".join(f"{axis}=..." for axis, _ in sheet.solved.axes)
        found.append(f'no size that was seen is odd, and those find forgotten masks: --odd "{axes}"')
    strided = sorted({v.name for call in group.calls for v in call.values if v.is_tensor and not _plain(v)})
    if strided:
        found.append(f"{', '.join(strided)} were not contiguous: drawn contiguous; --contents has them as they lay")
    if len(group.calls) == 1:
        found.append("one size was seen: sizes that are equal are taken for one axis")
    return tuple(found)


def _plain(value: Value) -> bool:
    step = 1
    for size, stride in zip(reversed(value.shape), reversed(value.stride), strict=True):
        if size > 1 and stride != step:
            return False
        step *= size
    return True


# --------------------------------------------------------------------------------------------- contents


def _draws(
    asked: CapturedOrigin, captured: Captured, samples: tuple[Sample, ...], sheet: tuple[_Sheet, dict[str, Given]]
) -> tuple[dict[str, str], str, tuple[str, ...]]:
    """Texts of inputs(), what they need, and notes."""
    table, said = sheet
    profiles = {p.name: p for p in captured.profiles}
    found = {name: f"case.{axis}" for name, axis in table.extra.items()}
    drawn: dict[str, Drawing] = {}
    unwritten = []
    for name, one in said.items():
        profile = profiles.get(name)
        if not isinstance(one, Drawn) or profile is None or not _drawable(profile, one):
            continue
        if one.written and (profile.nan or max(abs(profile.low), abs(profile.high)) > GARBAGE):
            unwritten.append(f"`{name}` held what was left in memory, and is written: drawn as it always is")
            continue
        drawn[name] = captured_draws.drawing(profile, torch_texts.shape(one.dims), _below(Path(asked.folder), profile, samples, table))
    head = captured_draws.helper() if any(d.helper for d in drawn.values()) else ""
    notes = () if asked.contents else (*(note for d in drawn.values() for note in d.notes), *unwritten)
    return found | {name: d.text for name, d in drawn.items()}, head, notes


def _drawable(profile: Profile, one: Drawn) -> bool:
    """Whether torch draws that type, and the profile is of it."""
    return profile.dtype == one.dtype and dtypes.by_name(one.dtype).bits >= 8 and one.dtype != "float8_e8m0"


def _below(place: Path, profile: Profile, samples: tuple[Sample, ...], sheet: _Sheet) -> str:
    """The axis that bounds whole numbers in every sample and is nearest to the largest of them, as inputs() writes it; "" for none."""
    kind = dtypes.by_name(profile.dtype)
    if kind.is_float or kind.bits < 16 or profile.low < 0:
        return ""
    highs = []
    for sample in samples:
        part = next((p for p in sample.parts if p.name == profile.name and p.whole and p.nbytes), None)
        if part is not None and decode.known(part.dtype) == kind:
            values = decode.numbers(folder.piece(folder.contents(place, sample), part), kind)
            highs.append((sample.call, int(values.max())))
    ratios = {axis: [high / vector[call] for call, high in highs] for axis, vector in sheet.solved.axes}
    near = {axis: max(r) for axis, r in ratios.items() if r and max(r) < 1 and max(r) > 0.5}
    return f"case.{max(near, key=lambda a: near[a])}" if near and len(set(sheet.rows)) > 1 else ""


def _with_contents(asked: CapturedOrigin, found: Found, samples: tuple[Sample, ...], sheet: _Sheet) -> Found:
    """The same, with captured contents of the cases that have some."""
    files: dict[str, bytes] = {}
    calls: dict[str, list[Stored]] = {}
    tensors = [name for name, one in found.said.items() if isinstance(one, Drawn)]
    for sample in samples:
        row = sheet.row_of[sample.call]
        parts = [p for p in sample.parts if p.name in tensors and p.place < 0 and p.whole]
        if row not in (*sheet.chosen.timed, *sheet.chosen.checked) or {p.name for p in parts} != set(tensors):
            continue
        data = folder.contents(Path(asked.folder), sample)
        if sum(map(len, files.values())) + len(data) > MOST_CONTENTS:
            continue
        files[f"{captured_draws.FOLDER}/{sample.file}"] = data
        about = ({"name": p.name, "dtype": p.dtype, "shape": p.shape, "stride": p.stride, "at": p.at, "nbytes": p.nbytes} for p in parts)
        calls.setdefault(sheet.name(row), []).append(Stored(sample.file, sample.sha256, tuple(about)))
    if not calls:
        step = "Capture with more --megabytes or --samples, or leave --contents out"
        raise UsageError("no whole contents of these calls were kept", where="--contents", next_step=step)
    loader, index = captured_draws.stored({name: tuple(some) for name, some in calls.items()})
    files[f"{captured_draws.FOLDER}/index.json"] = index
    named = (sheet.name(i) for i in (*sheet.chosen.timed, *sheet.chosen.checked))
    without = [name for name in named if name not in calls]
    notes = [f"contents are {sum(map(len, calls.values()))} captured calls, with 1 % of noise on floating ones"]
    notes += [f"no captured contents for {', '.join(without)}: drawn there"] if without else []
    head = f"{found.head}\n\n{loader}" if found.head else loader
    return replace(found, head=head, merged="captured(case, rng)", files=files, whole=tuple(tensors), notes=(*found.notes, *notes))
