"""What bears the name of a Triton kernel is Triton's when its IR, compiled again inside the walls, becomes the image of the plan.

With the Triton of this interpreter, which compiles for a GPU that is not there; skipped where there is none.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from msgspec import Struct
from msgspec.structs import replace

from keepfast.capture import handover
from keepfast.capture.handover import Options, Source
from keepfast.capture.recompile import Result
from keepfast.gpu import cubin
from keepfast.gpu.plan import Kernel, Memset
from keepfast.judge import builder
from keepfast.judge.builder import Site
from keepfast.judge.endings import Failure
from keepfast.judge.gpu.recompiled import Found, Launched, Recompiler, asked, launched
from keepfast.judge.gpu.workers import Planned
from keepfast.model import Rules, Task
from keepfast.walls.base import Walls
from tests.gpu_records.test_plan import KERNEL, PLAN
from tests.judge.tasks import softmax_task

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on PATH")
ROOT = Path(__file__).parents[3]
OPTIONS = Options(4, 1, 3, None, None, None, True, True)
CUDA = """
extern "C" __global__ void rms(const unsigned short *x, const unsigned short *w, unsigned short *y, int n, float eps) {
    y[threadIdx.x] = x[threadIdx.x];
}
"""


class Made(Struct, frozen=True, array_like=True):
    label: str
    name: str
    image: bytes
    source: Source

    @property
    def launched(self) -> Launched:
        return Launched(self.name, self.image, self.source)


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Made]:
    """Kernels of many kinds, by label."""
    folder = tmp_path_factory.mktemp("triton")
    env = {**os.environ, "TRITON_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
    argv = [sys.executable, "-m", "tests.capture.triton_kernels", str(folder / "out")]
    subprocess.run(argv, check=True, env=env, cwd=folder, stdout=subprocess.DEVNULL)
    found = msgspec.msgpack.decode((folder / "out").read_bytes(), type=list[Made])
    return {one.label: one for one in found}


@pytest.fixture
def fresh(walls: Walls) -> Recompiler:
    return Recompiler(Site(walls, "sm_90"))


def digest(image: bytes) -> bytes:
    return hashlib.sha256(image).digest()


def altered(image: bytes, section: str) -> bytes:
    """The image with another last byte in a section: its size stays."""
    head = next(head for name, head in cubin._sections(image) if name == section)
    at = head[4] + head[5] - 1
    return image[:at] + bytes([image[at] ^ 1]) + image[at + 1 :]


def resized(image: bytes) -> bytes:
    """The image with a segment, the one with the code, that is executable no more."""
    (start,) = struct.unpack_from("<Q", image, 32)
    at = start + 3 * 56 + 4
    return image[:at] + struct.pack("<I", 4) + image[at + 4 :]


def of(image: bytes, name: str, source: Source | None) -> Launched:
    """As a worker hands it over: whatever it was made of, it says that it is of this image."""
    return Launched(name, image, None if source is None else replace(source, image=digest(image)))


# ---- with Triton


@needs_triton
def test_every_kernel_comes_out_as_it_was(fresh: Recompiler, made: dict[str, Made]) -> None:
    found = fresh.judge([one.launched for one in made.values()], [made["rms"].launched])
    assert found.forged == {}
    assert len(made) >= 11
    assert len({one.image for one in made.values() if one.name == "rms"}) >= 4  # one name, many specialisations
    (fact,) = found.facts
    assert fact.value.startswith(f"{len({one.image for one in made.values()})} of ")
    assert "2 instructions of inline PTX" not in fact.value
    assert "1 instructions of inline PTX among it" in fact.value


@needs_triton
def test_an_image_that_triton_does_not_make_is_forged(fresh: Recompiler, made: dict[str, Made]) -> None:
    rms = made["rms"]
    source = rms.source
    lies = {
        "code": of(altered(rms.image, ".text.rms"), "code", source),
        "constants": of(altered(rms.image, ".nv.constant0.rms"), "constants", source),
        "symbols": of(altered(rms.image, ".symtab"), "symbols", source),
        "segment": of(resized(rms.image), "segment", source),
        "cut": of(rms.image[:-1], "cut", source),
        "other": of(rms.image, "other", made["product"].source),
        "options": of(rms.image, "options", replace(source, options=replace(source.options, num_warps=8))),
        "silent": of(altered(rms.image, ".nv.info"), "silent", None),
        "fused": of(made["rms, few registers"].image, "fused", replace(source, options=OPTIONS)),
    }
    fresh.unable = ""
    found = fresh.judge([*lies.values(), rms.launched], ())
    # Other IR of a known image changes nothing: it is Triton's, whoever says so.
    assert found.forged.keys() == lies.keys() - {"other", "options"}
    assert found.forged["code"] == "its IR, compiled again, gives another image: .text.rms differs"
    assert found.forged["symbols"].endswith("gives another image: .symtab differs")
    assert found.forged["segment"].endswith("gives another image: 3 differs")
    assert found.forged["cut"].startswith("no kernel image: ")
    assert found.forged["silent"] == "no Triton IR of it was handed over"


@needs_triton
def test_lines_and_file_names_do_not_count(fresh: Recompiler, made: dict[str, Made]) -> None:
    """ptxas writes the date of the source file, where it finds it: a worker has it, and who compiles again has not."""
    rms, lines = made["rms"], made["rms"].source.text.replace(b"triton_kernels.py", b"another_name_of_it.py")
    moved = replace(rms.source, text=lines)
    found = fresh.judge(
        [of(altered(rms.image, ".debug_line"), "lines", rms.source), of(rms.image + b"tail", "moved", moved)], [rms.launched]
    )
    assert lines != rms.source.text
    assert found.forged == {}
    assert found.facts[0].value.startswith("2 of 2 images")


@needs_triton
def test_other_ir_or_options_make_another_image(fresh: Recompiler, made: dict[str, Made]) -> None:
    slim, rms = made["rms, another width"], made["rms"]
    given = [of(slim.image, "rms", rms.source), of(made["product"].image, "product", replace(made["product"].source, options=OPTIONS))]
    fresh.unable = ""
    found = fresh.judge(given, ())
    assert found.forged.keys() == {"rms", "product"}


@needs_triton
@needs_nvcc
def test_nvccs_image_of_the_same_name_is_forged(fresh: Recompiler, made: dict[str, Made], tmp_path: Path) -> None:
    (tmp_path / "rms.cu").write_text(CUDA)
    subprocess.run(["nvcc", "-cubin", "-arch=sm_90a", "rms.cu", "-o", "rms.cubin"], cwd=tmp_path, check=True)
    image = (tmp_path / "rms.cubin").read_bytes()
    fresh.unable = ""
    found = fresh.judge([of(image, "rms", made["rms"].source)], ())
    assert found.forged["rms"].startswith("its IR, compiled again, gives another image: ")
    silent = fresh.judge([of(image + b"\0", "rms", None)], ())
    assert silent.forged == {"rms": "no Triton IR of it was handed over"}


LLVM = b"module { llvm.func @rms(%a: !llvm.ptr<1>) attributes {nvvm.kernel = 1 : i32} { llvm.return } }"
HOSTILE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda text: b"", "crashed, or took more"),
    "no_ir": (lambda text: b"\0\xff{{{", "it does not compile again"),
    "deep": (lambda text: b"module {" * 200_000, "crashed, or took more"),
    "llvm": (lambda text: LLVM, "its IR has `llvm."),
    "symbol": (lambda text: text.replace(b"@helped", b'@"helped() { ret; } //"'), "its IR has the name"),
    "leaves": (lambda text: text.replace(b"{ tanh.approx.f32 $0, $1; }", b"} .visible .entry f() {"), "that ends the function"),
    "extern": (lambda text: text.replace(b"__nv_erff", b"my_own_erff"), "it does not compile again"),
}  # fmt: skip


@needs_triton
def test_hostile_ir_is_another_image_and_no_more(fresh: Recompiler, made: dict[str, Made]) -> None:
    helped = made["helped"]
    images = {name: helped.image + name.encode() for name in HOSTILE}
    given = [of(images[name], name, replace(helped.source, text=change(helped.source.text))) for name, (change, _) in HOSTILE.items()]
    told = replace(helped.source, options=replace(helped.source.options, ptx_options="-o /tmp/elsewhere"))
    fresh.unable = ""
    found = fresh.judge([*given, of(helped.image + b"ptxas", "ptxas", told)], ())
    assert found.forged.keys() == {*HOSTILE, "ptxas"}
    assert {name for name, (_, why) in HOSTILE.items() if why not in found.forged[name]} == set(), found.forged
    assert found.forged["ptxas"] == "`ptx_options` has '-o /tmp/elsewhere'"


# ---- what is made of it


def images(*names: str) -> list[Launched]:
    return [of(f"image of {name}".encode(), name, Source(b"", "ttir", name.encode(), OPTIONS)) for name in names]


class Scripted(Recompiler):
    """Compiles as it is told: an image of `wrong` comes out as another one. `asked`: what it was given, by call."""

    def __init__(self, *wrong: str) -> None:
        super().__init__(Site(None, "sm_90"))  # type: ignore[arg-type]  # never entered
        self.wrong, self.asked = wrong, list[list[str]]()

    def _compiled(self, sources: tuple[Source, ...]) -> tuple[Result, ...]:
        names = [source.text.decode() for source in sources]
        self.asked.append(names)
        return tuple(Result(b"other" if name in self.wrong else f"image of {name}".encode()) for name in names)


def test_an_image_is_compiled_once() -> None:
    scripted = Scripted("b")
    first = scripted.judge(images("a", "b"), images("start"))
    again = scripted.judge(images("a", "b", "c"), images("start"))
    assert scripted.asked == [["start"], ["a", "b"], ["b"], ["b"], ["c"]]  # what differs is tried three times
    assert first.forged.keys() == again.forged.keys() == {"b"}
    assert first.facts[0].value.startswith("1 of 2 images are what Triton makes of their IR; ")
    assert scripted.judge([], images("start")) == Found({}, ())


@pytest.mark.parametrize(
    ("control", "why"),
    [
        (images("start"), "by name: compiling again does not give the start's own `start`: no 64-bit"),
        (
            [of(b"image", "start", None)],
            "by name: compiling again does not give the start's own `start`: no Triton IR of it was handed over",
        ),
        ([], "by name: the start launches no Triton kernel that compiling again could be tried on"),
    ],
)
def test_where_the_starts_own_kernels_do_not_come_out_names_count(control: list[Launched], why: str) -> None:
    scripted = Scripted("start", "a")
    found = scripted.judge(images("a"), control)
    assert found.forged == {}
    assert found.facts[0].name == "origin"
    assert found.facts[0].value.startswith(why)
    assert scripted.judge(images("a"), images("good")) == found  # it is asked once a run


def test_what_fails_as_a_whole_proves_nothing(monkeypatch: pytest.MonkeyPatch, fresh: Recompiler) -> None:
    from keepfast.model import Reason

    monkeypatch.setattr(builder, "run", lambda *_: Failure(Reason.BUILD_LIMIT, "compiling took more than 300 s"))
    fresh.unable = ""
    found = fresh.judge(images("a"), ())
    assert found.forged == {"a": "it could not be compiled again: compiling took more than 300 s"}

    def silent(walls: object, steps: object, content: object, out: Path, profile: str) -> str:
        out.write_bytes(b"\x91" * 5000)
        return ""

    monkeypatch.setattr(builder, "run", silent)
    assert fresh.judge(images("b"), ()).forged == {"b": "it could not be compiled again: no answer"}


def test_what_is_launched_under_a_name() -> None:
    kernel, other = replace(KERNEL, name="a"), replace(KERNEL, name="b", image=1)
    nodes = tuple(replace(PLAN.nodes[0], work=work) for work in (kernel, other, kernel, Memset(4096, 0, 0, 4, 2, 1)))
    plan = replace(PLAN, images=(b"a", b"b"), nodes=nodes)
    ir = handover.encode((Source(digest(b"a"), "ttir", b"x", OPTIONS),))
    planned = [Planned(plan, b"", 0, 0, ir), Planned(plan, b"", 0, 0, b"no IR")]
    (one,) = launched(planned, {"a"})
    assert (one.name, one.image, one.source) == ("a", b"a", Source(digest(b"a"), "ttir", b"x", OPTIONS))
    assert [(found.name, found.source) for found in launched(planned[1:], {"a", "b"})] == [("a", None), ("b", None)]
    assert isinstance(kernel, Kernel)


@pytest.mark.parametrize(
    ("languages", "rules", "wanted"),
    [
        (("triton",), Rules(), True),
        (("triton", "cuda"), Rules(), True),
        (("cuda",), Rules(), False),
        (("torch", "triton"), Rules(), False),
        (("torch",), Rules(languages=("triton",)), True),
    ],
)
def test_it_is_asked_only_where_a_rule_turns_on_it(tmp_path: Path, languages: tuple[str, ...], rules: Rules, wanted: bool) -> None:
    task: Task = softmax_task(str(tmp_path), languages=languages, rules=rules)
    assert asked(task) is wanted
