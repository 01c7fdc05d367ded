"""The kernel that workers compile while they get ready."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

SCRIPT = """
from cardless import NoCard
from triton.runtime.driver import driver

driver.set_active(NoCard())
from keepfast.capture import first

print(len(first.compiled().asm["cubin"]))
"""


def test_it_compiles_without_being_launched():
    path = (str(Path(__file__).parents[1] / "examples"), *(p for p in sys.path if p))
    env = os.environ | {"PYTHONPATH": os.pathsep.join(path)}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 1000
