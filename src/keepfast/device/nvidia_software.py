"""What of the GPU's software is installed: versions as packaging says, CUPTI, nvcc. Imports none of it. Must not know cards."""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
import sys
from importlib import metadata

NAMES = ("torch", "triton", "cuda-bindings", "nvidia-ml-py")
TOOLKITS = ("/usr/local/cuda", "/usr/local/cuda-*", "/opt/cuda")
CUPTI = ("extras/CUPTI/lib64", "lib64", "targets/*/lib")


def version(package: str) -> str:
    """The installed version, or an empty string."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def versions() -> tuple[tuple[str, str], ...]:
    return tuple((name, version(name)) for name in NAMES)


def cuda_needed() -> tuple[tuple[str, int], ...]:
    """(package with its version, major of CUDA that it was made for): what the driver must offer at least."""
    bindings, torch = version("cuda-bindings"), version("torch")
    made_for = re.search(r"\+cu(\d+)\d$", torch)
    found = [(f"cuda-bindings {bindings}", bindings.split(".")[0])] if bindings else []
    found += [(f"torch {torch}", made_for[1])] if made_for else []
    return tuple((name, int(major)) for name, major in found if major.isdigit())


def triton_wanted() -> str:
    """The version of Triton that the installed torch asks for, or an empty string when it asks for none."""
    try:
        needs = metadata.requires("torch") or []
    except metadata.PackageNotFoundError:
        return ""
    found = (re.match(r"(?:pytorch-)?triton\s*\(?==\s*([\w.+]+)", need) for need in needs)
    return next((match[1] for match in found if match), "")


def cupti() -> str:
    """Path of libcupti: in the nvidia packages, else in a toolkit; an empty string when there is none."""
    packages = [f"{folder}/nvidia/*/lib" for folder in sys.path if folder.endswith("-packages")]
    places = [*packages, *(f"{toolkit}/{part}" for toolkit in TOOLKITS for part in CUPTI)]
    return next((path for place in places for path in sorted(glob.glob(f"{place}/libcupti.so*"))), "")


def nvcc() -> tuple[str, str]:
    """Path and release of CUDA's compiler; two empty strings when there is none."""
    beside = (path for toolkit in TOOLKITS for path in sorted(glob.glob(f"{toolkit}/bin/nvcc")) if os.access(path, os.X_OK))
    if (path := shutil.which("nvcc") or next(beside, None)) is None:
        return "", ""
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    release = re.search(r"release ([\d.]+)", said)
    return path, release[1] if release else "of an unknown release"
