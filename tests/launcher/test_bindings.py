"""cuda-bindings as it is installed takes the arguments of all our calls: a whole case on a driver that answers everything with success."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from keepfast.gpu.messages import Audit, Bench, Close, Profile, Run, Solo, Time
from keepfast.gpu.plan import Block, Copy, Empty, Kernel, Memset, Node, Plan
from tests.launcher.world import World

HERE = Path(__file__).parent
IMAGE = b"\x7fELF scale"


def every_kind(made: Plan) -> Plan:
    first = made.nodes[0]
    assert isinstance(first.work, Kernel)
    works: list[Any] = [
        Memset(made.sets, 0, 1, 1, 4, 1),
        Copy(made.sets, 16, made.sets + 64, 16, 16, 1),
        Empty(),
        replace(first.work, cluster=(2, 1, 1), cooperative=True, carveout=50),
        replace(first.work, shared=1000, cluster=(16, 1, 1)),
        replace(first.work, parameters=((-1, bytes(64)),)),
    ]
    nodes = [Node(0, work, (i,), (i,) if i == 4 else ()) for i, work in enumerate(works)]
    return replace(made, nodes=(first, *nodes, *made.nodes[1:]))


def whole_case() -> None:
    world = World(None, (b"", IMAGE))
    case = world.case()
    arena, made = case.plan("scale", blocks=(Block(1024, b"12345"),))
    found = world.open(case, [(arena, every_kind(made)), case.plan("scale")], kind="gpu")
    assert found.fault is None, found.fault
    orders = (
        Run(0, 1, 5, keep=True),
        Run(0, 1, 5, alone=True, against=True),
        Audit(0, 1),
        Time(2, 5, 1),
        Solo(0, 5, 4),
        Profile(0),
        Bench(),
    )
    for order in orders:
        fault = world.ask(order).fault
        assert fault is None, (order, fault)
    assert world.ask(Close()) is None


def test_cuda_bindings_takes_our_arguments(tmp_path: Path) -> None:
    pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")
    if shutil.which("gcc") is None:
        pytest.skip("gcc is needed for a driver that answers everything with success")
    subprocess.run(["gcc", "-shared", "-fPIC", "-w", "-o", tmp_path / "libcuda.so.1", HERE / "stub.c"], check=True)
    code = "from tests.launcher.test_bindings import whole_case; whole_case()"
    env = os.environ | {"LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], cwd=HERE.parents[1], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
