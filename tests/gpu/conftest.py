"""Tests on a real card: skipped, with the reason, where there is none. One judge a task serves the whole session.

`pytest tests/gpu` runs them one after the other; `python -m tests.gpu` does so in shards, beside each other where nothing is timed, which
is what `--part` and the mark `alone` are for.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from keepfast.judge import calibrate
from keepfast.judge.gpu import noise
from tests.gpu.stand import Stand


def lack() -> str:
    """Why these tests cannot run here, or ""."""
    for name in ("torch", "triton", "cuda.bindings.driver", "pynvml"):
        try:
            __import__(name)
        except ImportError:
            return f"{name} is not installed"
    import pynvml

    try:
        pynvml.nvmlInit()
        return "" if pynvml.nvmlDeviceGetCount() else "no NVIDIA GPU"
    except pynvml.NVMLError as error:
        return f"no NVIDIA GPU: {error}"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", default="1/1", help="every K-th test of tests/gpu, from the n-th on, of n/K")
    parser.addoption("--outcomes", default="", help="file for the answers to the corpus, as `keepfast redteam --out` writes and reads it")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "alone: times something, or looks at all of the card's memory; nothing else may use the card")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    mine = [item for item in items if here in item.path.parents]
    number, _, count = str(config.getoption("--part", "1/1")).partition("/")
    if int(count or 1) > 1:
        items[:] = mine = mine[int(number) - 1 :: int(count)]
    if mine and (why := lack()):
        for item in mine:
            item.add_marker(pytest.mark.skip(reason=f"needs an NVIDIA GPU with torch and Triton: {why}"))


@pytest.fixture(scope="session")
def stands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Stand]]:
    """`stands("norm")`: the judge of tests/gpu/tasks/norm, begun on its start kernel; one at a time is kept."""
    made: dict[str, Stand] = {}

    def get(name: str) -> Stand:
        if name not in made:
            for other in made.values():
                other.close()
            made.clear()
            made[name] = Stand.open(name, tmp_path_factory.mktemp(name))
        return made[name]

    yield get
    for stand in made.values():
        stand.close()


@pytest.fixture(scope="session", autouse=True)
def brief() -> Iterator[None]:
    """A look at the noise that is enough for tests: eight rounds instead of twenty."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibrate, "ROUNDS", 4)
        patch.setattr(calibrate, "PAD_ROUNDS", 2)
        patch.setattr(noise, "LAYOUTS", 2)
        yield


@pytest.fixture
def shell() -> Callable[[str, Path], str]:
    """Runs a command line in a folder; its output. CalledProcessError when it fails."""

    def run(line: str, folder: Path) -> str:
        done = subprocess.run(line, shell=True, cwd=folder, capture_output=True, text=True, check=True)  # noqa: S602
        return done.stdout

    return run
