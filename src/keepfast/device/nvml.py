"""Asking NVML, the library behind nvidia-smi. Only looks: keepfast makes no call that changes a setting.

Owns how it is opened and what a missing answer is. Must not know what is asked, or why.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from keepfast.errors import MachineError

SIGNS = ("/proc/driver/nvidia/version", "/dev/nvidiactl")
INSTALL = "pip install 'keepfast[gpu]'"
NO_GPU = "no NVIDIA GPU: nvidia-smi sees none on this machine"
NO_GPU_STEP = "in a container: start it with --gpus all; else install NVIDIA's driver, then run nvidia-smi"

# nvmlReturn_t: not supported by this card or driver, not allowed to this user, not there, nothing yet. All are no answer, and no error.
NO_ANSWER = {2, 3, 4, 6, 10, 13, 21, 25, 26}
NO_DRIVER, VERSIONS_DIFFER, LOST, CLOSED = {9, 12}, 18, {15, 16}, 4


class Nvml(Protocol):
    def __call__(self, call: str, *arguments: Any) -> Any:
        """What `nvml<call>` answers; None where this card, driver or user gets no answer. MachineError when the card does not answer."""


def present() -> bool:
    """Whether this machine shows signs of NVIDIA's driver. Costs nothing."""
    return any(os.path.exists(path) for path in SIGNS)


class Library:
    """NVML itself, through nvidia-ml-py. MachineError where there is none."""

    def __init__(self) -> None:
        self._module = _module()
        try:
            self._module.nvmlInit()
        except self._module.NVMLError as error:
            raise _closed(int(error.value), str(error)) from error

    def __call__(self, call: str, *arguments: Any) -> Any:
        function = getattr(self._module, f"nvml{call}", None)
        if function is None:
            return None
        try:
            return function(*arguments)
        except self._module.NVMLError as error:
            if error.value in NO_ANSWER:
                return None
            step = "the card needs a reset or a restart of the machine" if error.value in LOST else "nvidia-smi"
            raise MachineError(f"the NVIDIA driver does not answer ({call}: {error})", next_step=step) from error

    def close(self) -> None:
        self("Shutdown")


@contextmanager
def opened(given: Nvml | None = None) -> Iterator[Nvml]:
    """NVML for the length of a block, or the one that is given, which stays as it is."""
    if given is not None:
        yield given
        return
    library = Library()
    try:
        yield library
    finally:
        library.close()


def _module() -> Any:
    try:
        import pynvml
    except ImportError as error:
        if not present():
            raise MachineError(NO_GPU, next_step=NO_GPU_STEP) from error
        raise MachineError("the package nvidia-ml-py is not installed, through which keepfast sees GPUs", next_step=INSTALL) from error
    return pynvml


def _closed(code: int, words: str) -> MachineError:
    if code in NO_DRIVER:
        return MachineError(NO_GPU, next_step=NO_GPU_STEP)
    if code == VERSIONS_DIFFER:
        return MachineError("the NVIDIA driver was updated while the old one is still loaded", next_step="restart this machine")
    if code == CLOSED:
        return MachineError("the GPU is closed to this user", next_step="ls -l /dev/nvidia*   (they are usually open to all)")
    return MachineError(f"the NVIDIA driver does not start: {words}", next_step="nvidia-smi")
