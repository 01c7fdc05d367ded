"""A worker's two exchanges, over a real channel with real memfds, and a GPU that is not there."""

from __future__ import annotations

import hashlib
import mmap
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from keepfast import native, wire
from keepfast.capture import worker
from keepfast.capture.arena import Arena
from keepfast.capture.cupti import Images
from keepfast.capture.handover import Seen, decode
from keepfast.gpu import messages
from keepfast.gpu import plan as plans
from keepfast.gpu.layout import Layout
from keepfast.gpu.messages import Capture, Captured, CaseWork, Ready, Warm
from tests.capture.kit import FakeGpu, laid

ADD = laid((("x", "float32", (4, 8), False), ("w", "float32", (8,), False)), (("y", "float32", (4, 8)),))
WIDE = msgspec.structs.replace(
    laid((("x", "float32", (64, 8), False), ("w", "float32", (8,), False)), (("y", "float32", (64, 8)),)), case="c2"
)
ORDER = Warm(1 << 40, 1 << 30, "/nowhere/arena.so", 0, ("torch",), 1 << 29)
SOURCE = b"""
import card, torch
from keepfast_tunables import SCALE

def kernel(x, w):
    y = card.empty(tuple(x.shape), torch.float32)
    card.kernel("add", x.data_ptr(), y.data_ptr(), work=lambda: torch.mul(x + w, SCALE, out=y))
    return y
"""
FILES = (("kernel/kernel.py", SOURCE), ("kernel/keepfast_tunables.py", b"SCALE = 2\n"))


class Judge:
    """The other end of the channel."""

    def __init__(self, side: worker.Side, home: Path) -> None:
        self.channel, self.theirs = socket.socketpair()
        self.ended: list[BaseException] = []

        def run() -> None:
            try:
                worker.serve(self.theirs, home, lambda order: side)
            except wire.WireError as error:
                self.ended.append(error)

        self.thread = threading.Thread(target=run)
        self.thread.start()
        self.plans: list[int] = []

    def ready(self) -> Ready:
        messages.send(self.channel, ORDER)
        return msgspec.convert(wire.receive(self.channel, timeout_s=20)[0], Ready)

    def ask(self, cases: tuple[tuple[Layout, int, bytes], ...], library: bytes = b"", files: Any = FILES, **more: Any) -> Captured:
        data = msgspec.msgpack.encode(files)
        work = tuple(CaseWork(layout, calls, sample=len(sample)) for layout, calls, sample in cases)
        self.plans = [wire.memfd("plan", 1 << 20) for _ in cases]
        fds = [filled(data), *([filled(library)] if library else []), *self.plans, *(filled(s) for _, _, s in cases if s)]
        known = {"language": "torch", "entry_path": "kernel/kernel.py", "entry_symbol": "kernel"} | more
        messages.send(self.channel, Capture(library=bool(library), files_bytes=len(data), cases=work, **known), fds)
        answer = msgspec.convert(wire.receive(self.channel, timeout_s=20)[0], Captured)
        self.thread.join(20)
        assert not self.thread.is_alive()
        return answer

    def plan(self, index: int, answer: Captured) -> plans.Plan:
        with mmap.mmap(self.plans[index], 1 << 20, prot=mmap.PROT_READ) as memory:
            return plans.decode(memory[: answer.cases[index].plan_bytes])


def filled(data: bytes) -> int:
    fd = wire.memfd("data", len(data))
    os.pwrite(fd, data, 0)
    return fd


@pytest.fixture
def side(gpu: FakeGpu, arena: Arena) -> worker.Side:
    return worker.Side(gpu, arena, Images(), gpu.tensor, "13.0")


@pytest.fixture
def judge(side: worker.Side, tmp_path: Path) -> Iterator[Judge]:
    made = Judge(side, tmp_path / "candidate")
    yield made
    made.channel.close()
    made.thread.join(20)
    made.theirs.close()


def test_two_cases_become_two_plans(judge: Judge, gpu: FakeGpu, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    assert judge.ready().ok
    sample = bytes(range(256)) * 4
    answer = judge.ask(((ADD, 3, sample), (WIDE, 5, b"")))
    assert (answer.error, answer.detail) == ("", "")
    assert [c.case for c in answer.cases] == ["c1", "c2"]
    assert all(c.host_us > 0 for c in answer.cases)
    assert dict(answer.versions) == dict(answer.versions) | {"torch": torch.__version__, "cuda driver": "13.0"}
    first, second = judge.plan(0, answer), judge.plan(1, answer)
    assert (first.case, first.calls, len(first.nodes)) == ("c1", 3, 3)
    assert (second.case, second.calls, len(second.nodes)) == ("c2", 5, 5)
    assert (tmp_path / "candidate/tree/kernel/keepfast_tunables.py").read_bytes() == b"SCALE = 2\n"
    assert first.blocks == second.blocks == ()
    assert gpu.arena.live() == (), "nothing is left of a case"


def test_what_triton_made_is_handed_over_behind_the_plan(judge: Judge, side: worker.Side) -> None:
    pytest.importorskip("torch")
    side.compiled = Seen()
    image = b"\x7fELF .text.add\0 .text.scale\0"
    said = SimpleNamespace(
        num_warps=4,
        num_ctas=1,
        num_stages=3,
        maxnreg=None,
        ptx_version=None,
        ptx_options=None,
        enable_fp_fusion=True,
        enable_reflect_ftz=True,
    )
    side.compiled.kernels.append(SimpleNamespace(kernel=image, name="add", asm={"ttir": "module {}"}, metadata=said))
    judge.ready()
    answer = judge.ask(((ADD, 3, b""), (WIDE, 5, b"")))
    assert (answer.error, answer.detail) == ("", "")
    for index, case in enumerate(answer.cases):
        with mmap.mmap(judge.plans[index], 1 << 20, prot=mmap.PROT_READ) as memory:
            (source,) = decode(memory[case.plan_bytes : case.plan_bytes + case.ir_bytes])
        assert (source.image, source.text) == (hashlib.sha256(judge.plan(index, answer).images[0]).digest(), b"module {}")


def test_the_case_that_failed_is_named_and_those_before_it_are_kept(judge: Judge) -> None:
    pytest.importorskip("torch")
    judge.ready()
    source = SOURCE.replace(b"    return y", b"    if x.shape[0] == 64: raise ValueError(f'no kernel for {x.shape[0]} rows')\n    return y")
    answer = judge.ask(((ADD, 2, b""), (WIDE, 2, b""), (ADD, 2, b"")), files=(("kernel/kernel.py", source), FILES[1]))
    assert (answer.error, answer.case, [c.case for c in answer.cases]) == ("raised", "c2", ["c1"])
    assert answer.detail.startswith("kernel/kernel.py:8: `if x.shape[0] == 64:")
    assert answer.detail.endswith("ValueError: no kernel for 64 rows")
    assert judge.plan(0, answer).calls == 2


@pytest.mark.parametrize(
    ("files", "error", "words"),
    [
        ((("kernel/kernel.py", b"import cupynumeric_\n"),), "import", "kernel/kernel.py:1: `import cupynumeric_`: ModuleNotFoundError"),
        ((("kernel/other.py", b""),), "import", "FileNotFoundError"),
        ((("kernel/kernel.py", b"def kernel(x, w):\n    return x\n"),), "result", "got memory of an argument"),
    ],
)
def test_what_cannot_be_loaded_or_called(judge: Judge, files: Any, error: str, words: str) -> None:
    pytest.importorskip("torch")
    judge.ready()
    answer = judge.ask(((ADD, 2, b""),), files=files)
    assert answer.error == error
    assert words in answer.detail


def test_a_library_with_the_c_abi_needs_no_torch(judge: Judge, side: worker.Side, gpu: FakeGpu, tmp_path: Path) -> None:
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("no gcc")
    gpu.always, side.memory = "add", None
    (tmp_path / "one.c").write_text(
        "#include <stdint.h>\nint keepfast_call(const uint64_t *w) { *(float *)w[2] = *(float *)w[0]; return 0; }\n"
    )
    subprocess.run([gcc, "-shared", "-fPIC", str(tmp_path / "one.c"), "-o", str(tmp_path / "one.so")], check=True)
    judge.ready()
    answer = judge.ask(((ADD, 4, b""),), (tmp_path / "one.so").read_bytes(), language="cuda", entry_path="kernel/kernel.cu")
    assert answer.error == ""
    plan = judge.plan(0, answer)
    assert len({r[0].address for r in plan.results}) == 4


def test_a_library_without_the_entry(judge: Judge) -> None:
    judge.ready()
    answer = judge.ask(((ADD, 4, b""),), b"not a library", language="cuda", entry_path="kernel/kernel.cu")
    assert (answer.error, "the library does not load" in answer.detail) == ("import", True)


def test_a_plan_that_its_memory_does_not_hold(judge: Judge) -> None:
    pytest.importorskip("torch")
    judge.ready()
    source = b"import card\nkept = card.empty((3 << 20,), __import__('torch').uint8)\n" + SOURCE
    answer = judge.ask(((ADD, 2, b""),), files=(("kernel/kernel.py", source), FILES[1]))
    assert (answer.error, answer.detail) == ("not-a-plan", "a plan of 3 MiB; it may have 1 MiB")


def test_descriptors_that_are_not_those_of_the_request(judge: Judge) -> None:
    judge.ready()
    messages.send(judge.channel, Capture("torch", "kernel.py", "kernel", False, 1, (CaseWork(ADD, 1),)), [filled(b"x")])
    judge.thread.join(20)
    assert "1 descriptors came with a capture, not 2" in str(judge.ended[0])


def test_an_answer_fits_into_a_frame(side: worker.Side, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = Capture("triton", "kernel.py", "kernel", False, 0, ())
    fd = filled(msgspec.msgpack.encode(()))
    request = msgspec.structs.replace(request, files_bytes=os.fstat(fd).st_size)
    made = worker.Worker(side, request, worker.Inbox(request, [fd]), tmp_path)
    words = tuple(f"BLOCK: {i}, num_warps: 4, \u00e9" for i in range(300))
    monkeypatch.setattr(made.autotuned, "described", lambda: tuple((f"k{i}", words) for i in range(20)))
    answer = made._answer([], None, "")
    assert 0 < len(answer.autotuned) < 20
    ours, theirs = socket.socketpair()
    with ours, theirs:
        said = threading.Thread(target=worker._say, args=(ours, answer))
        said.start()
        assert msgspec.convert(wire.receive(theirs, timeout_s=5)[0], Captured) == answer
        said.join(5)


def test_details_travel_whatever_they_hold(judge: Judge) -> None:
    pytest.importorskip("torch")
    judge.ready()
    source = b"def kernel(x, w):\n    raise ValueError('\\x1b[31m\\ud800\\x00' + 5000 * '\\U0001f600')\n"
    answer = judge.ask(((ADD, 2, b""),), files=(("kernel/kernel.py", source),))
    assert answer.error == "raised"
    assert len(answer.detail) <= 1500


def test_a_worker_that_cannot_get_ready_says_why(tmp_path: Path) -> None:
    """The real program on a machine without a GPU."""
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a GPU")
    ours, theirs = socket.socketpair()
    argv = [sys.executable, "-m", "keepfast.capture.worker", str(theirs.fileno())]
    env = {"PYTHONPATH": os.pathsep.join(sys.path), "HOME": str(tmp_path), "PATH": os.defpath}
    process = subprocess.Popen(argv, pass_fds=(theirs.fileno(),), env=env, stderr=subprocess.PIPE)
    theirs.close()
    with ours:
        messages.send(ours, msgspec.structs.replace(ORDER, libraries=(), arena_library=str(native.library("arena"))))
        answer = msgspec.convert(wire.receive(ours, timeout_s=120)[0], Ready)
    _, said = process.communicate(timeout=120)
    assert (process.returncode, said) == (0, b"")
    assert not answer.ok
    assert answer.detail.startswith(("CUPTI: ", "the GPU: "))


def test_a_judge_that_goes_away_ends_it(judge: Judge) -> None:
    judge.channel.close()
    judge.thread.join(20)
    assert isinstance(judge.ended[0], wire.Closed)


@pytest.mark.parametrize("why", ["arena", "torch: No module named 'torch'"])
def test_not_ready(tmp_path: Path, why: str) -> None:
    def make(_order: Warm) -> worker.Side:
        raise worker.NotReady(why)

    ours, theirs = socket.socketpair()
    with ours, theirs:
        messages.send(ours, ORDER)
        worker.serve(theirs, tmp_path, make)
        assert msgspec.convert(wire.receive(ours, timeout_s=5)[0], Ready) == Ready(False, why)


def test_what_goes_wrong_while_getting_ready_is_a_sentence() -> None:
    with pytest.raises(worker.NotReady, match="^torch: No module named 'torch_'$"), worker._said("torch"):
        __import__("torch_")
    with pytest.raises(worker.NotReady, match="^the GPU: RuntimeError$"), worker._said("the GPU"):
        raise RuntimeError
