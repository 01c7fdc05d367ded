from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from keepfast import dtypes
from keepfast.errors import TaskError


@pytest.mark.parametrize("dtype", [d for d in dtypes.TABLE if d.numpy], ids=lambda d: d.name)
def test_the_table_agrees_with_numpy(dtype: dtypes.DType) -> None:
    array = np.dtype(dtype.numpy)
    assert array.itemsize * 8 == dtype.bits
    assert dtypes.of_numpy(array) == dtype
    assert (array.kind == "f") is dtype.is_float
    assert dtype.eps == (float(np.finfo(array).eps) if dtype.is_float else None)


@pytest.mark.parametrize("name", ["complex64", "datetime64[s]", "U4", ">f4", "float128"])
def test_numpy_types_that_keepfast_has_not(name: str) -> None:
    assert dtypes.of_numpy(np.dtype(name)) is None


def test_small_floats_travel_as_bits() -> None:
    bits = {"float16": "uint16_t", "bfloat16": "uint16_t", "float8_e4m3fn": "uint8_t", "bool": "uint8_t"}
    assert {name: dtypes.by_name(name).ctype for name in bits} == bits


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0", "float4_e2m1"])
def test_what_numpy_cannot_hold_is_marked(name: str) -> None:
    assert dtypes.by_name(name).numpy is None


def test_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(TaskError, match=r"unknown dtype `bfloat_16`. Did you mean `bfloat16`\?"):
        dtypes.by_name("bfloat_16")


def test_importing_does_not_import_numpy() -> None:
    code = "import sys, keepfast.task.load, keepfast.task.onboard, keepfast.task.schema; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
