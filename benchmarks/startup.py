"""What it costs to start and to install keepfast.

    python benchmarks/startup.py [--repeats 20] [--wheel FILE.whl] [--fresh]

Builds the wheel, installs it with its base dependencies into a fresh virtual environment, and measures there:

    import      python -c "import keepfast", the whole process, and inside it the import alone
    help        keepfast --help, the whole process
    size        all files of the environment less *.pyc, pip and setuptools, in MB of 10^6 bytes

Bars: import below 150 ms, help below 350 ms (medians of wall time, after one start that is not counted), size at most 110 MB. Times of a
bare interpreter stand beside them. Needs the package index. Killed, it goes on where it was; it writes benchmarks/results/startup.jsonl
and startup.json.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import time
from pathlib import Path

import workbench
from msgspec import Struct
from workbench import About, Bar, Store

from keepfast.errors import UsageError
from keepfast.stats import median

ROOT = Path(__file__).resolve().parents[1]
IMPORT_MS, HELP_MS, SIZE_MB = 150.0, 350.0, 110.0
LEFT_OUT = ("pip", "setuptools", "pkg_resources", "_distutils_hack", "distutils-precedence.pth")
INSIDE = "import time; t = time.perf_counter(); import keepfast; print(1e3 * (time.perf_counter() - t))"


class Times(Struct, frozen=True):
    """Milliseconds."""

    name: str
    median: float
    fastest: float
    slowest: float
    samples: tuple[float, ...]


class Part(Struct, frozen=True):
    name: str
    mb: float


class Result(Struct, frozen=True):
    about: About
    wheel: str
    wheel_sha256: str
    times: tuple[Times, ...]
    installed_mb: float
    parts: tuple[Part, ...]  # largest first
    bars: tuple[Bar, ...]


class Given(Struct, frozen=True):
    """The command line."""

    repeats: int
    wheel: Path | None
    fresh: bool
    results: Path


# --------------------------------------------------------------------------------------------- installing


def called(argv: list[str], cwd: Path) -> str:
    """What a command prints; UsageError with its last words when it fails."""
    done = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        words = (done.stderr or done.stdout).strip().splitlines()
        raise UsageError(f"{' '.join(argv[:4])} failed: {words[-1] if words else done.returncode}", where=str(cwd))
    return done.stdout


def environment(folder: Path) -> Path:
    """A fresh virtual environment; its Python."""
    called([sys.executable, "-m", "venv", str(folder)], folder.parent)
    return folder / "bin" / "python"


def built(room: Path) -> Path:
    """The wheel of this checkout, built in a copy-free way by its own build backend."""
    python = environment(room / "build")
    called([str(python), "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(room / "wheel"), str(ROOT)], room)
    (found,) = (room / "wheel").glob("*.whl")
    return found


def installed(room: Path, wheel: Path) -> Path:
    python = environment(room / "installed")
    called([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel.resolve())], room)
    return python


def size(environment: Path) -> tuple[Part, ...]:
    """Bytes on disk by top-level name in site-packages; what lies elsewhere is `environment`. Links count nothing."""
    sizes: dict[str, int] = {}
    for path in environment.rglob("*"):
        if path.is_symlink() or not path.is_file() or path.suffix == ".pyc":
            continue
        parts = path.relative_to(environment).parts
        name = parts[parts.index("site-packages") + 1] if "site-packages" in parts else "environment"
        if not name.startswith(LEFT_OUT):
            sizes[name] = sizes.get(name, 0) + path.stat().st_size
    return tuple(Part(name, n / 1e6) for name, n in sorted(sizes.items(), key=lambda item: -item[1]))


# --------------------------------------------------------------------------------------------- starting


def wall_ms(argv: list[str], cwd: Path) -> float:
    began = time.perf_counter()
    called(argv, cwd)
    return 1e3 * (time.perf_counter() - began)


def times(store: Store, name: str, repeats: int, once: Start) -> Times:
    """Each start is an item of its own; the first is not counted."""
    found = [store.once(f"{name} {n}", float, once) for n in range(repeats + 1)][1:]
    return Times(name, median(found), min(found), max(found), tuple(found))


class Start(Struct, frozen=True):
    """One start, in a folder where no keepfast lies; its milliseconds. `inside`: as the program itself says."""

    argv: tuple[str, ...]
    cwd: Path
    inside: bool = False

    def __call__(self) -> float:
        return float(called([*self.argv], self.cwd)) if self.inside else wall_ms([*self.argv], self.cwd)


def starts(python: Path, cwd: Path) -> dict[str, Start]:
    command = str(python)
    return {
        "bare interpreter": Start((command, "-c", "pass"), cwd),
        "import keepfast": Start((command, "-c", "import keepfast"), cwd),
        "the import alone": Start((command, "-c", INSIDE), cwd, inside=True),
        "keepfast --help": Start((str(python.parent / "keepfast"), "--help"), cwd),
    }


def bars(found: dict[str, Times], mb: float) -> tuple[Bar, ...]:
    def bar(name: str, limit: float) -> Bar:
        t = found[name]
        return Bar(name, f"less than {limit:.0f} ms", f"{t.median:.0f} ms [{t.fastest:.0f}, {t.slowest:.0f}]", t.median < limit)

    size = Bar("installed size", f"at most {SIZE_MB:.0f} MB", f"{mb:.1f} MB", mb <= SIZE_MB)
    return bar("import keepfast", IMPORT_MS), bar("keepfast --help", HELP_MS), size


def tell(found: dict[str, Times], parts: tuple[Part, ...]) -> None:
    rows = [
        ("", "median", "fastest", "slowest"),
        *((t.name, *(f"{x:.1f} ms" for x in (t.median, t.fastest, t.slowest))) for t in found.values()),
    ]
    print(workbench.table(rows))
    print(workbench.table([("", "MB"), *((p.name, f"{p.mb:.1f}") for p in parts[:12])]))


def run(given: Given) -> int:
    about = workbench.about("none")
    workbench.introduce(about)
    with workbench.room() as room:
        wheel = given.wheel or built(room)
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        store = Store(given.results / "startup.jsonl", about.machine.hash, digest, fresh=given.fresh)
        python = installed(room, wheel)
        (room / "empty").mkdir()
        parts = store.once("size", tuple[Part, ...], lambda: size(room / "installed"))
        found = {name: times(store, name, given.repeats, start) for name, start in starts(python, room / "empty").items()}
        mb = sum(p.mb for p in parts)
        result = Result(workbench.finished(about), wheel.name, digest, tuple(found.values()), mb, parts, bars(found, mb))
        workbench.write(given.results / "startup.json", result)
        tell(found, parts)
        return workbench.settled(result.bars)


def main(arguments: list[str] | None = None) -> int:
    parser = workbench.arguments(__doc__)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--wheel", type=Path, help="measure this wheel instead of building one")
    return workbench.called(parser, arguments, Given, run)


if __name__ == "__main__":
    sys.exit(main())
