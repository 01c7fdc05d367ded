"""A GPU that is not there: tensors without memory that say they lie on a card, and a Triton that compiles and launches nothing.

For `compile_only`, a process with nothing else to do: what is put in place here stays. Knows torch and Triton; must not know
candidates or files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import torch
from msgspec import Struct
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode

from keepfast.capture.prepare import Prepare
from keepfast.capture.tensors import dtype
from keepfast.gpu.layout import Layout, Tensor
from keepfast.gpu.ptxas import resources

KIB = 1 << 10
SHARED = {75: 64 * KIB, 80: 163 * KIB, 86: 99 * KIB, 87: 163 * KIB, 89: 99 * KIB, 120: 99 * KIB, 121: 99 * KIB}  # a block may ask for
SHARED_OF_OTHERS = 227 * KIB
PROCESSORS = {80: 108, 86: 84, 89: 128, 90: 132, 100: 148, 103: 148, 120: 188}
FIRST_ADDRESS = 1 << 40


class Compiled(Struct, frozen=True):
    """A kernel as Triton made it. `shared_bytes` of a block, dynamic memory included."""

    name: str
    registers: int
    spill_bytes: int
    shared_bytes: int
    warps: int
    stages: int


# --------------------------------------------------------------------------------------------- Triton


class Launcher:
    """What Triton makes for each kernel to launch it; it launches nothing."""

    def __init__(self, source: object, metadata: object) -> None:
        self.metadata = metadata

    def __call__(self, *arguments: object) -> None:
        return


class Driver:
    """Stands where Triton's CUDA driver stands: one device of the wanted kind, no context."""

    def __init__(self, capability: int) -> None:
        from triton.backends.compiler import GPUTarget

        self.target = GPUTarget("cuda", capability, 32)
        self.utils, self.launcher_cls = self, self._launcher
        self.logs: list[str] = []
        self.compiled: dict[bytes, Compiled] = {}
        self.metadata: Any = None
        self.tried = False  # a configuration of the kernel that is being tuned compiles

    def _launcher(self, source: object, metadata: object) -> Launcher:
        self.metadata = metadata
        return Launcher(source, metadata)

    def log(self, *words: object) -> None:
        self.logs.append(" ".join(map(str, words)))

    def load_binary(self, name: str, image: bytes, shared: int, device: int) -> tuple[int, int, int, int, int]:
        """Triton's last step before a launch: here the end of it. Module, function, registers, spills, threads of a block."""
        known = next((r for log in reversed(self.logs) for r in resources(log) if r.name == name), None)
        registers, spills = (known.registers, known.spill_bytes) if known else (0, 0)
        about = (getattr(self.metadata, "num_warps", 0), getattr(self.metadata, "num_stages", 0))
        self.compiled[image] = Compiled(name, registers, spills, shared + (known.shared_bytes if known else 0), *about)
        return 1, 1, registers, spills, 1024

    def get_device_properties(self, device: int) -> dict[str, int]:
        number = self.target.arch
        return {
            "max_shared_mem": SHARED.get(number, SHARED_OF_OTHERS),
            "multiprocessor_count": PROCESSORS.get(number, 100),
            "max_num_regs": 65536,
            "warpSize": 32,
        }

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> object:
        return self.target

    def get_device_capability(self, device: int) -> tuple[int, int]:
        major, minor = divmod(int(self.target.arch), 10)
        return major, minor

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cuda", 0)

    def get_device_interface(self) -> Any:
        return torch.cuda

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        return torch.empty(1, dtype=torch.int32)

    def clear_cache(self, cache: torch.Tensor) -> None:
        return

    def get_benchmarker(self) -> Callable[..., list[float]]:
        return self.bench

    def bench(self, call: Callable[[], object], *unused: object, **named: object) -> list[float]:
        """Takes the first configuration that compiles; the others are not tried."""
        if self.tried:
            return [float("inf")] * 3
        call()
        self.tried = True
        return [1.0, 1.0, 1.0]

    def next_round(self) -> None:
        self.tried = False


def install(driver: Driver) -> None:
    """Puts `driver` in the place of Triton's, and reads what ptxas says about each kernel."""
    import triton
    from triton.backends.nvidia import compiler
    from triton.runtime.autotuner import Autotuner

    triton.runtime.driver.set_active(driver)
    triton.knobs.nvidia.dump_ptxas_log = triton.knobs.compilation.always_compile = True
    compiler.print = driver.log
    triton.testing.do_bench = triton.testing.do_bench_cudagraph = driver.bench
    prune = Autotuner.prune_configs

    def fresh_round(self: object, *arguments: object) -> object:
        driver.next_round()
        return prune(self, *arguments)

    Autotuner.prune_configs = fresh_round


# --------------------------------------------------------------------------------------------- torch


class Pretend(TorchFunctionMode):  # type: ignore[misc]  # torch is not installed where this is checked
    """Tensors are of the CPU and have no memory; whoever asks is told that they lie on the first GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.busy = False  # below torch's own functions, which have to know the truth
        kind, card = torch.Tensor, torch.device("cuda", 0)
        self.answers: dict[object, Callable[..., object]] = {
            kind.device.__get__: lambda *_: card,
            kind.is_cuda.__get__: lambda *_: True,
            kind.is_cpu.__get__: lambda *_: False,
            kind.get_device: lambda *_: 0,
            kind.cuda: lambda tensor, *_, **__: tensor,
            kind.pin_memory: lambda tensor, *_, **__: tensor,
        }

    def __torch_function__(self, func: Any, types: object, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None) -> object:
        if func in self.answers:
            return self.answers[func](*args, **(kwargs or {}))
        before, self.busy = self.busy, True
        try:
            if func is torch.device:
                return func(*args, **(kwargs or {}))
            return func(*map(_moved, args), **{name: _moved(value) for name, value in (kwargs or {}).items()})
        finally:
            self.busy = before


def _moved(value: object) -> object:
    """A device on the GPU becomes the CPU, where the tensors without memory are."""
    on_gpu = (isinstance(value, str) and value.partition(":")[0] == "cuda") or (isinstance(value, torch.device) and value.type == "cuda")
    return torch.device("cpu") if on_gpu else value


def _address(tensor: FakeTensor) -> int:
    """As well aligned as a real one."""
    return FIRST_ADDRESS + int(tensor.storage_offset() * tensor.element_size())


def pretend(driver: Driver) -> None:
    """torch.cuda answers for one card; what would wait for it does nothing."""
    stream = SimpleNamespace(cuda_stream=0, device=torch.device("cuda", 0), synchronize=lambda: None, wait_stream=lambda other: None)
    major, minor = driver.get_device_capability(0)
    card = driver.get_device_properties(0)
    about = SimpleNamespace(
        name=f"sm_{major}{minor}", major=major, minor=minor, multi_processor_count=card["multiprocessor_count"], total_memory=80 << 30,
        shared_memory_per_block_optin=card["max_shared_mem"], shared_memory_per_multiprocessor=card["max_shared_mem"] + KIB,
        regs_per_multiprocessor=65536, max_threads_per_multi_processor=2048, warp_size=32, L2_cache_size=50 << 20,
    )  # fmt: skip
    answers = {
        "is_available": True, "is_initialized": True, "device_count": 1, "current_device": 0, "get_device_name": about.name,
        "get_device_capability": (major, minor), "get_device_properties": about, "current_stream": stream, "default_stream": stream,
        "synchronize": None, "init": None, "_lazy_init": None, "_exchange_device": 0, "_maybe_exchange_device": 0, "set_device": None,
        "is_current_stream_capturing": False, "Stream": stream, "Event": SimpleNamespace(record=lambda *_: None, wait=lambda *_: None),
    }  # fmt: skip
    for name, answer in answers.items():
        setattr(torch.cuda, name, lambda *_, _answer=answer, **__: _answer)
    torch.cuda.stream = lambda stream: nullcontext()
    FakeTensor.data_ptr, FakeTensor.record_stream = _address, lambda tensor, stream: None
    torch.compiler.set_stance("force_eager")  # torch.compile would want to know the card


@contextmanager
def without_memory() -> Iterator[None]:
    """Inside, every tensor that is made has a shape and no memory."""
    mode, truth, card = Pretend(), FakeTensor.device, torch.device("cuda", 0)
    FakeTensor.device = property(lambda tensor: truth.fget(tensor) if mode.busy else card)
    with FakeTensorMode(allow_non_fake_inputs=True), mode:
        yield


def call(entry: Callable[..., object], layout: Layout, beside: Callable[[Layout], Prepare | None] = lambda layout: None) -> object:
    """The entry, called with the arguments of a case, tensors as the layout has them, and with what `prepare` makes of them."""
    given: list[object] = [_empty(one.tensor) if one.tensor is not None else one.value for one in layout.given]
    ready = beside(layout)
    return entry(*(given if ready is None else ready.instead(given, ready(given))))


def _empty(tensor: Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.strides, dtype=dtype(tensor.dtype), device="cuda")
