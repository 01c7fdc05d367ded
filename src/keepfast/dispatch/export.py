"""The story of `keepfast export`: the certified champion as a package that needs no keepfast.

Owns what must be known before anything is written, and the two layouts. Nothing is timed here.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
from pathlib import Path

from msgspec import Struct

from keepfast import shop
from keepfast.dispatch import certify, measure, operator, package, render, shapes, text
from keepfast.dispatch import space as spaces
from keepfast.dispatch.records import Axes, Table, Terms
from keepfast.errors import UsageError
from keepfast.ledger import Ledger
from keepfast.materialise import Workshop
from keepfast.model import Case, Experiment, Run, Task
from keepfast.repo import Repo
from keepfast.report import numbers
from keepfast.task.signature import reserved

LAYOUTS = ("python", "hf")
BIG = 1 << 24  # elements a test argument may have


class Wanted(Struct, frozen=True):
    """`keepfast export` as it was asked for."""

    out: Path
    name: str = ""
    layout: str = "python"
    op: str = ""
    uncertified: bool = False


class Made(Struct, frozen=True):
    name: str
    folder: Path
    regions: int
    op: str
    said: str
    next_step: str


class Kept(Struct, frozen=True):
    """What is exported: the champion of a run, and the run."""

    run: Run
    champion: Experiment


def export(folder: Path, wanted: Wanted) -> Made:
    """Write the package. UsageError without a complete table of this champion, unless it is to be uncertified."""
    task = shop.load_task(folder)
    repo = Repo.find(Path(task.folder))
    with Ledger.open(repo.state, readonly=True) as ledger:
        kept = _kept(task, ledger)
        candidate = Workshop(task, repo).at(kept.champion.commit, kept.champion.n)
        table = certify.newest_table(ledger, kept.run, candidate.tree)
    if table is None and not wanted.uncertified:
        step = f"keepfast certify {task.name}   measures where it wins;   --uncertified   sends everything to stock"
        raise UsageError(f"champion {kept.champion.n} of run {kept.run.id} has no complete routing table", next_step=step)
    if table is None:
        table = _uncertified(shop.open_shop(folder), kept, candidate.tree)
    source = package.Source(task, table, candidate.files, _name(task, wanted.name), _override(task, wanted.op))
    return write(source, wanted, evidence(source, kept))


def _kept(task: Task, ledger: Ledger) -> Kept:
    run = ledger.latest(task.name)
    champion = ledger.champion(run.id) if run is not None else None
    if run is None or champion is None:
        raise UsageError(f"no champion of {task.name} to export", next_step=f"keepfast run {task.name}")
    if run.task_hash != task.hash:
        raise UsageError(f"the task has changed since run {run.id}", next_step=f"keepfast run {task.name}")
    return Kept(run, champion)


def _name(task: Task, given: str) -> str:
    plain = re.sub(r"\W+", "_", task.name, flags=re.ASCII).strip("_").lower() or "kernel"
    name = given or f"{plain if plain[0].isalpha() else f'k_{plain}'}_fast"
    if (why := reserved(name)) is not None:
        raise UsageError(f"--name: {why}", next_step="--name softmax_fast")
    return name


def _override(task: Task, given: str) -> operator.Override | None:
    """The operator that baselines/op.py calls: what a task made with --op has. UsageError when --op names another, or it cannot be said."""
    path = Path(task.folder) / "baselines" / "op.py"
    found = operator.read(path.read_text(encoding="utf-8"), task.signature) if path.is_file() else None
    if given and (found is None or found.op.replace("::", ".") != given.removeprefix(operator.PREFIX).removesuffix(".default")):
        said = f"baselines/op.py calls {found.op}" if found else "baselines/op.py does not say how it is called"
        raise UsageError(f"`{given}` cannot be replaced: {said}", where=task.name, next_step=f"keepfast init NAME --op {given}")
    return found


def _uncertified(ready: shop.Shop, kept: Kept, tree: str) -> Table:
    """A table without regions, for a kernel that was measured in its task's cases alone: everything goes to stock."""
    task, machine = ready.task, ready.machine
    names = spaces.fallbacks(task, task.dispatch)
    if not names:
        raise UsageError("there is no baseline to fall back to", where=f"{task.folder}/baselines", next_step="Write one in baselines/")
    arguments, outputs = shapes.read(task.signature, measure.seen(ready, task.cases))
    return Table(
        task=task.name,
        task_hash=task.hash,
        signature=task.signature.text,
        run=kept.run.id,
        champion=kept.champion.n,
        tree=tree,
        commit=kept.champion.commit,
        device="cuda" if task.gpu else "cpu",
        machine=machine.hash,
        card=machine.gpu or machine.cpu,
        versions=certify.versions(gpu=task.gpu),
        walls=machine.walls,
        stock=names[0],
        fallbacks=names,
        space=spaces.made(task, {axis for axis, _ in shapes.places(arguments)}),
        terms=Terms(certify.ALPHA, 1, 0.0, 0.0),
        rounds=0,
        when=time.time(),
        complete=False,
        arguments=arguments,
        outputs=outputs,
        rows=(),
        regions=(),
        certified=False,
    )


# --------------------------------------------------------------------------------------------- writing


def write(source: package.Source, wanted: Wanted, lines: list[str]) -> Made:
    """All files of the layout, in a folder that is new or empty."""
    out = wanted.out.resolve()
    if out.exists() and any(out.iterdir()):
        raise UsageError("is not empty", where=str(out), next_step="--out some/new/folder")
    files = _hub(source, lines) if wanted.layout == "hf" else _python(source, lines)
    for path, data in files.items():
        (out / path).parent.mkdir(parents=True, exist_ok=True)
        (out / path).write_bytes(data)
    count = len(source.table.regions)
    said = f"{source.name} in {out}: {count} certified region{'' if count == 1 else 's'}, everything else goes to {source.table.stock}"
    step = f"pip install {out}" if wanted.layout == "python" else f"kernel-builder build-and-upload   in {out}"
    return Made(source.name, out, count, source.override.op if source.override else "", said, step)


def _python(source: package.Source, lines: list[str]) -> dict[str, bytes]:
    module = package.module_files(source)
    made = {f"src/{source.name}/{path}": data for path, data in module.items()}
    made |= {f"tests/{path}": data for path, data in package.test_files(source).items()}
    requires = ["torch>=2.6", *(["numpy"] if not source.task.gpu else [])]
    title, override = source.task.title, source.override is not None
    made["tests/test_package.py"] = tests(source).encode()
    made["pyproject.toml"] = render.filled(
        "pyproject.toml.j2", package=source.name, title=title, requires=requires, override=override
    ).encode()
    made["README.md"] = readme(source, lines).encode()
    return made


def _hub(source: package.Source, lines: list[str]) -> dict[str, bytes]:
    """The layout of a kernel repository: the source tree of kernel-builder, and the variant that it would build, ready to be loaded."""
    if not source.task.entry_path.endswith(".py"):
        what = (
            f"`{source.task.entry_path}` has to be compiled, which kernel-builder does against bindings of torch that are not written here"
        )
        raise UsageError(what, where="--layout hf", next_step="--layout python")
    kernel_id = f"_{source.name}_{source.table.device}_{source.table.tree[:7]}"
    module = package.module_files(source, kernel_id)
    made = {f"torch-ext/{source.name}/{path}": data for path, data in module.items() if not path.startswith(("_vllm", "_override"))}
    variant = {path: data for path, data in module.items() if not path.startswith(("_vllm", "_override"))}
    variant["_ops.py"] = render.filled("ops.py.j2", kernel_id=kernel_id).encode()
    top = f"build/torch-{source.table.device}"
    made |= {f"{top}/{path}": data for path, data in variant.items()}
    made[f"{top}/metadata.json"] = metadata(source, kernel_id, variant).encode()
    made |= {f"tests/{path}": data for path, data in package.test_files(source).items()}
    made["tests/test_package.py"] = tests(source).encode()
    made["build.toml"] = render.filled("build.toml.j2", package=source.name, device=source.table.device).encode()
    made["flake.nix"] = render.filled("flake.nix.j2", package=source.name).encode()
    made["CARD.md"] = readme(source, lines).encode()
    return made


def metadata(source: package.Source, kernel_id: str, files: dict[str, bytes]) -> str:
    """metadata.json of a build variant."""
    digests = {path: base64.b64encode(hashlib.sha256(data).digest()).decode() for path, data in sorted(files.items())}
    found = {
        "id": kernel_id,
        "name": source.name.replace("_", "-"),
        "version": 1,
        "license": "Apache-2.0",
        "python-depends": [],
        "backend": {"type": source.table.device},
        "digest": {"algorithm": "sha256", "files": digests},
    }
    return json.dumps(found, indent=2) + "\n"


# --------------------------------------------------------------------------------------------- tests


def tests(source: package.Source) -> str:
    """tests/test_package.py, with the points that it asks about."""
    table = source.table
    small = [c for c in source.task.cases if _elements(table, c.axes) <= BIG] or list(source.task.cases[:1])
    known = {row.cell: row for row in table.rows}
    lost = [dict(next(iter(table.space.points(cell)))) for cell, row in known.items() if not row.custom]
    points = {
        "stock": [p for p in lost if _elements(table, tuple(p.items())) <= BIG and not _routed(table, p)][:8],
        "outside": _outside(table, small[0])[:6],
        "any": dict(max(small, key=lambda c: _elements(table, c.axes) if c.timed else 0).axes),
    }
    return render.filled(
        "test_package.py.j2",
        package=source.name,
        op=source.task.signature.name,
        table=table,
        reference="reference",
        points=_plainly(points),
        cases=_plainly({c.name: dict(c.axes) for c in small}),
        numpy_inputs=not source.task.gpu,
        override=source.override is not None,
        stock_module=f"{package.STOCK}.{Path(source.stock.path).stem}",
        stock_takes_all=not source.stock.path.endswith(tuple(package.NATIVE)),
        written=[a.name for a in table.arguments if a.written],
    )


def _plainly(value: object) -> str:
    return json.dumps(value).replace("true", "True").replace("false", "False")


def _routed(table: Table, point: dict[str, int]) -> bool:
    from keepfast.dispatch.table import route

    return route(table.regions, point) is not None


def _outside(table: Table, case: Case) -> list[dict[str, int]]:
    """Points beyond what was measured on one visible axis, small enough to be drawn."""
    found = []
    for i, (axis, _) in enumerate(table.space.visible):
        values = [row.cell[i] for row in table.rows] or [case.axis(axis)]
        for value in (max(values) + 1, max(values) * 2, min(values) - 1):
            point = dict(case.axes) | {axis: value}
            if value >= 1 and _elements(table, tuple(point.items())) <= BIG:
                found.append(point)
    return found


def _elements(table: Table, axes: Axes) -> int:
    """Elements of the largest tensor."""
    known, most = dict(axes), 1
    for tensor in (*table.arguments, *table.outputs):
        count = 1
        for dim in tensor.dims:
            size = shapes.size(dim, known)
            count *= dim.high if size is None else size
        most = max(most, count)
    return most


# --------------------------------------------------------------------------------------------- what it says of itself


def readme(source: package.Source, lines: list[str]) -> str:
    table = source.table
    return render.filled(
        "README.md.j2",
        package=source.name,
        op=source.task.signature.name,
        title=source.task.title,
        signature=source.task.signature.text,
        table=table,
        day=text.day(table.when),
        regions=text.regions(table),
        switch=re.sub(r"\W", "_", source.name).upper() + "_ROUTE",
        written=[a.name for a in table.arguments if a.written],
        override=source.override,
        stock_gradient=source.task.gpu and source.stock.path.endswith(".py"),
        evidence=lines,
        listing=text.told(table),
        weak=weak(source),
    )


def evidence(source: package.Source, kept: Kept) -> list[str]:
    """Gain, interval, n, machine, cases."""
    table, gain = source.table, kept.champion.verdict.gain
    cases = ", ".join(f"{c.name} ({' '.join(f'{a}={v}' for a, v in c.axes)})" for c in source.task.timed)
    versions = ", ".join(f"{k} {v}" for k, v in table.versions if v)
    found = [f"machine: {table.card}, {versions}; walls {table.walls}; fingerprint {table.machine}"]
    if gain is not None:
        gained = f"{numbers.gain(gain)} {numbers.interval(gain)}, {gain.rounds} rounds, against {gain.opponent}"
        found.insert(0, f"gain of the last keep: {gained}")
    found.append(f"cases of the task: {cases}; {len(source.task.cases) - len(source.task.timed)} more for correctness")
    found.append(f"certificate: {len(table.rows)} cells, {table.rounds} rounds a comparison, {text.level(table)}")
    return found


def weak(source: package.Source) -> list[str]:
    """What this package does not show, the gravest first."""
    table = source.table
    lines = ["no engine: gains are of the kernel alone; `keepfast e2e` is what shows that serving gets faster"]
    if not table.certified or not table.regions:
        lines.insert(0, "no region is certified: the kernel is never used unless it is forced")
    hidden = [name for name, values in table.space.hidden if len(values) > 1]
    if hidden:
        lines.append(f"{', '.join(hidden)}: measured at the values listed, taken to be alike between them")
    lines.append("between two measured wins, at most a factor of two apart, values of the same divisibility are taken to be like them")
    if loose := text.free(table):
        lines.append(f"{', '.join(loose)}: follow no axis, and are held to the range that was seen")
    if source.task.oracle == "frozen":
        lines.append("right is what the kernel at the start of the run gave: same as before, not proven right")
    imported = [name for name in package.imports(source) if name not in ("torch", "triton", "numpy", "math", "typing", "functools")]
    return lines + ([f"imports {', '.join(imported)}, which must be installed"] if imported else [])
