"""Builds inside the walls: what comes out, what the compiler must not see, and compilers that are made to hang."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from keepfast.errors import MachineError
from keepfast.judge import builder, toolchain
from keepfast.judge.builder import Built, BuiltTree, Site
from keepfast.judge.endings import Failure
from keepfast.model import Build, File, Reason, Task
from keepfast.walls.base import MIB, Walls
from tests.judge.tasks import softmax_task

DTYPES = {"x": "float32", "out": "float32"}
PLAIN = """#include "keepfast.h"
#include <math.h>
int kernel(const float *x, float *out, int64_t m, int64_t n, void *stream) {
    (void)stream;
    for (int64_t i = 0; i < m * n; i++) out[i] = expf(x[i]);
    return 0;
}
"""


@pytest.fixture(scope="module")
def walls() -> Walls:
    return Walls.detect()


@pytest.fixture
def folder(walls: Walls) -> Iterator[Path]:
    """A folder that walled processes can reach, with a reference in it."""
    made = walls.folder()
    (made / "reference.py").write_text("ANSWER = 42\n")
    yield made
    for path in sorted(made.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    made.rmdir()


def build(walls: Walls, folder: Path, text: str | bytes, **changes: object) -> Built | Failure:
    task: Task = softmax_task(str(folder), **changes)
    data = text.encode() if isinstance(text, str) else text
    return builder.build(walls, task, (File(task.entry_path, data),), DTYPES, folder / "out.so")


def refused(found: Built | Failure, reason: Reason = Reason.BUILD) -> str:
    assert isinstance(found, Failure), found
    assert found.reason is reason
    assert "\n" not in found.detail
    return found.detail


def built(found: Built | Failure) -> Built:
    assert isinstance(found, Built), found
    return found


# --------------------------------------------------------------------------------------------- what comes out


def test_the_result_can_be_called(walls: Walls, folder: Path) -> None:
    found = built(build(walls, folder, PLAIN))
    assert found.path == folder / "out.so"
    assert found.log == ""
    x, out = (ctypes.c_float * 6)(*range(6)), (ctypes.c_float * 6)()
    words = (ctypes.c_uint64 * 5)(ctypes.addressof(x), ctypes.addressof(out), 2, 3, 0)
    assert ctypes.CDLL(str(found.path)).keepfast_call(words) == 0
    assert out[1] == pytest.approx(2.71828, rel=1e-5)


def test_comments_and_folders_do_not_change_the_code(walls: Walls, folder: Path) -> None:
    first = built(build(walls, folder, PLAIN)).code_hash
    assert built(build(walls, folder, "/* more\n lines */\n" + PLAIN)).code_hash == first
    flags = Build(flags=("-O2", "-g"))
    located = PLAIN.replace("return 0", "return __FILE__[0] == '?'")
    assert built(build(walls, folder, located, build=flags)).code_hash == built(build(walls, folder, located, build=flags)).code_hash
    assert built(build(walls, folder, PLAIN.replace("expf", "logf"))).code_hash != first


def test_the_time_of_day_is_not_in_the_code(walls: Walls, folder: Path) -> None:
    built(build(walls, folder, PLAIN.replace("return 0", "return sizeof(__TIME__) == 1")))
    stamped = PLAIN + "const char *stamp(void) { return __TIME__; }\n__attribute__((used)) const char *(*keep)(void) = stamp;\n"
    built(build(walls, folder, stamped))
    assert b"00:00:00" in (folder / "out.so").read_bytes()


def test_cpp_with_the_same_entry(walls: Walls, folder: Path) -> None:
    text = "#include <algorithm>\n#include <vector>\n" + PLAIN.replace("return 0", "std::vector<float> v(3); return int(v.size()) - 3")
    found = built(build(walls, folder, text, entry_path="kernel/kernel.cpp"))
    x, out = (ctypes.c_float * 1)(0.0), (ctypes.c_float * 1)()
    assert ctypes.CDLL(str(found.path)).keepfast_call((ctypes.c_uint64 * 5)(ctypes.addressof(x), ctypes.addressof(out), 1, 1, 0)) == 0


def test_flags_sources_include_and_readable_are_the_humans(walls: Walls, folder: Path) -> None:
    (folder / "src").mkdir()
    (folder / "include").mkdir()
    (folder / "src" / "more.c").write_text(
        '#include "scale.h"\n#include "../data/table.h"\nfloat more(float v) { return SCALE * v + TABLE; }\n'
    )
    (folder / "include" / "scale.h").write_text("#define SCALE 2.0f\n")
    (folder / "data").mkdir()
    (folder / "data" / "table.h").write_text("#define TABLE 1.0f\n")
    settings = Build(flags=("-O1", "-fopenmp", "-DFACTOR=3"), sources=("src/more.c",), include=("include",), readable=("data/**",))
    text = PLAIN.replace("int kernel", 'float more(float);\n_Static_assert(FACTOR == 3, "");\nint kernel').replace("expf", "more")
    built(build(walls, folder, text, build=settings))
    assert "table.h" in refused(
        build(walls, folder, text, build=Build(sources=("src/more.c",), include=("include",), flags=("-DFACTOR=3",)))
    )


def test_tunables_become_a_header(walls: Walls, folder: Path) -> None:
    task = softmax_task(str(folder), tunables="kernel/tunables.toml")
    text = '#include "keepfast_tunables.h"\n_Static_assert(BLOCK == 8, "");\n' + PLAIN
    files = (File("kernel/kernel.c", text.encode()), File("kernel/tunables.toml", b"[BLOCK]\nchoices = [4, 8]\nvalue = 8\n"))
    built(builder.build(walls, task, files, DTYPES, folder / "out.so"))
    broken = (files[0], File("kernel/tunables.toml", b"[BLOCK]\nchoices = [4, 8]\nvalue = 9\n"))
    refused(builder.build(walls, task, broken, DTYPES, folder / "out.so"), Reason.BAD_TUNABLES)


@pytest.mark.parametrize("strength", ["partial", "none"])
def test_weaker_walls_build_the_same_code(walls: Walls, folder: Path, strength: str) -> None:
    weaker = Walls.detect("partial" if strength == "partial" else "none")
    assert built(build(weaker, folder, PLAIN)).code_hash == built(build(walls, folder, PLAIN)).code_hash


# --------------------------------------------------------------------------------------------- sentences


def test_the_first_error_is_the_detail(walls: Walls, folder: Path) -> None:
    text = PLAIN.replace("return 0", "return j")
    assert refused(build(walls, folder, text)) == "kernel.c:6: 'j' undeclared"
    said = refused(build(walls, folder, "int other(void) { return 0; }\n"))
    assert said == "undefined reference to `kernel': it is in no file of [build] sources"
    assert refused(build(walls, folder, f'__asm__("nonsense");\n{PLAIN}')).startswith(
        ("assembler: no such instruction", "kernel.c:1:", "assembler: unknown")
    )


def test_the_root_as_an_include_folder_opens_only_what_is_readable(walls: Walls, folder: Path) -> None:
    (folder / "data").mkdir()
    (folder / "data" / "a.h").write_text("#define ZERO 0\n")
    (folder / "data" / "b.h").write_text("#define ZERO 0\n")
    settings = Build(include=(".",), readable=("data/a.h",))
    text = f"#include <data/a.h>\n{PLAIN.replace('return 0', 'return ZERO')}"
    built(build(walls, folder, text, build=settings))
    assert "No such file" in refused(build(walls, folder, text.replace("a.h", "b.h"), build=settings))


def test_a_language_that_was_not_asked_for(walls: Walls, folder: Path) -> None:
    assert "kernel.rs" in refused(build(walls, folder, "fn main() {}", entry_path="kernel/kernel.rs"), Reason.LANGUAGE)


def test_paths_that_cannot_be_written_are_the_candidates_fault(walls: Walls, folder: Path) -> None:
    task = softmax_task(str(folder))
    both = (File("kernel/kernel.c", PLAIN.encode()), File("kernel/kernel.c/x.h", b""))
    refused(builder.build(walls, task, both, DTYPES, folder / "out.so"), Reason.GUARD)
    outside = (File("kernel/kernel.c", PLAIN.encode()), File("../../escaped.h", b""))
    refused(builder.build(walls, task, outside, DTYPES, folder / "out.so"), Reason.GUARD)
    refused(builder.build(walls, task, (File("kernel/" + "x" * 300, b""),), DTYPES, folder / "out.so"), Reason.GUARD)


def test_without_a_compiler_it_says_what_to_install(walls: Walls, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder))
    with pytest.raises(MachineError, match="apt install gcc"):
        build(walls, folder, PLAIN)


# --------------------------------------------------------------------------------------------- what it must not see


def test_secrets_are_not_there(walls: Walls, folder: Path) -> None:
    for path in ("/etc/shadow", "/etc/passwd", str(folder / "reference.py"), "../reference.py", f"/proc/{os.getpid()}/environ"):
        assert "No such file" in refused(build(walls, folder, f'#include "{path}"\n{PLAIN}'))
        assert "file not found" in refused(build(walls, folder, f'__asm__(".incbin \\"{path}\\"");\n{PLAIN}'))


def test_globs_of_the_human_do_not_open_the_reference(walls: Walls, folder: Path) -> None:
    (folder / "baselines").mkdir()
    (folder / "baselines" / "fast.h").write_text("")
    (folder / "way_there.h").symlink_to("reference.py")
    everything = Build(readable=("**",))
    for path in ("reference.py", "baselines/fast.h", "way_there.h"):
        assert "No such file" in refused(build(walls, folder, f'#include "../{path}"\n{PLAIN}', build=everything))


def test_a_build_leaves_nothing_behind(walls: Walls, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    tmp_path.chmod(0o755)
    build(walls, folder, PLAIN)
    build(walls, folder, "nonsense")
    assert list(tmp_path.iterdir()) == []


# --------------------------------------------------------------------------------------------- compilers made to hang


ENDLESS = "template<class T> struct L { typedef typename L<L<T>>::t t; };\nint q = sizeof(L<int>::t);\n"


@pytest.mark.parametrize(
    "text",
    [
        '#include "/dev/zero"\n',
        '__asm__(".rept 2000000000\\nnop\\n.endr");\n',
        '__asm__(".data\\n.fill 2000000000,1,1");\n',
    ],
    ids=["endless file", "endless code", "endless data"],
)
def test_a_build_has_limits(walls: Walls, folder: Path, text: str) -> None:
    assert "needs more than" in refused(build(walls, folder, text + PLAIN), Reason.BUILD_LIMIT)


def test_endless_templates_end(walls: Walls, folder: Path) -> None:
    assert "depth" in refused(build(walls, folder, ENDLESS + PLAIN, entry_path="kernel/kernel.cpp"))
    deep = Build(flags=("-ftemplate-depth=100000000",))
    refused(build(walls, folder, ENDLESS + PLAIN, entry_path="kernel/kernel.cpp", build=deep), Reason.BUILD_LIMIT)


def test_time_has_a_limit(walls: Walls, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "SECONDS", 0.3)
    slow = "#define A(x) x x x x x x x x\n#define B A(A(A(A(A(A(A(+1)))))))\nint slow(int i) { return i B; }\n"
    assert "more than" in refused(build(walls, folder, slow + PLAIN), Reason.BUILD_LIMIT)


def test_source_has_a_limit(walls: Walls, folder: Path) -> None:
    assert "95.4 MiB" in refused(build(walls, folder, b"/" * 100_000_000), Reason.TOO_BIG)


def test_messages_have_a_limit(walls: Walls, folder: Path) -> None:
    noisy = Build(flags=("-fmax-errors=0", "-fno-diagnostics-show-caret"))
    loud = "\n".join(f'#warning "{"x" * 1000}"' for _ in range(2000))
    found = built(build(walls, folder, f"{loud}\n{PLAIN}", build=noisy))
    assert 60_000 < len(found.log) <= builder.LOG_BYTES
    assert found.path.stat().st_size < MIB


def test_the_compilers_folders_are_known() -> None:
    assert any(Path(folder).is_dir() for folder in toolchain.folders())
    assert "/" not in toolchain.folders()
    assert str(Path.home()) not in toolchain.folders()


# --------------------------------------------------------------------------------------------- trees for a GPU

TRITON = "import torch\nfrom keepfast_tunables import BLOCK\n\n\ndef kernel(x):\n    return torch.empty_like(x)\n"
TUNABLES = b"[BLOCK]\nchoices = [64, 128]\nvalue = 128\n\n[LAYOUT]\nchoices = ['row', 'column']\nvalue = 'row'\n"
CUDA = """#include "keepfast.h"
__global__ void copy(const float *x, float *out, int64_t n) {
    int64_t i = blockIdx.x * 256L + threadIdx.x;
    if (i < n) out[i] = x[i];
}
int kernel(const float *x, float *out, int64_t m, int64_t n, void *stream) {
    copy<<<(m * n + 255) / 256, 256, 0, (cudaStream_t)stream>>>(x, out, m * n);
    return (int)cudaGetLastError();
}
"""
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on PATH")


def tree(walls: Walls, folder: Path, files: dict[str, str | bytes], language: str = "triton", **changes: object) -> BuiltTree | Failure:
    entry = next(iter(files))
    task = softmax_task(str(folder), languages=(language,), entry_path=entry, **{"build": Build(flags=("-O3",))} | changes)
    made = tuple(File(path, data.encode() if isinstance(data, str) else data) for path, data in files.items())
    return builder.tree(Site(walls, "sm_90"), task, made, DTYPES, folder / "library.so")


def grown(found: BuiltTree | Failure) -> BuiltTree:
    assert isinstance(found, BuiltTree), found
    return found


def rejected(found: BuiltTree | Failure, reason: Reason = Reason.BUILD) -> str:
    assert isinstance(found, Failure), found
    assert found.reason is reason
    return found.detail


def test_a_tree_of_python_has_its_tunables(walls: Walls, folder: Path) -> None:
    found = grown(tree(walls, folder, {"kernel/kernel.py": TRITON, "kernel/tunables.toml": TUNABLES}, tunables="kernel/tunables.toml"))
    assert (found.language, found.path, found.library) == ("triton", ("kernel",), None)
    files = {file.path: file.data for file in found.files}
    assert set(files) == {"kernel/kernel.py", "kernel/tunables.toml", "kernel/keepfast_tunables.py"}
    values: dict[str, object] = {}
    exec(files["kernel/keepfast_tunables.py"], values)
    assert (values["BLOCK"], values["LAYOUT"]) == (128, "row")


def test_tunables_lie_where_the_imports_of_a_package_begin(walls: Walls, folder: Path) -> None:
    files = {"src/norms/ops/k.py": TRITON, "src/norms/__init__.py": "", "src/norms/ops/__init__.py": ""}
    found = grown(tree(walls, folder, files, build=Build(include=("lib", "."))))
    assert "src/keepfast_tunables.py" in [file.path for file in found.files]
    assert found.path == ("src", "lib", "")


def test_a_tree_has_what_is_readable_and_nothing_else(walls: Walls, folder: Path) -> None:
    (folder / "lib").mkdir()
    (folder / "lib" / "helper.py").write_text("ONE = 1\n")
    (folder / "baselines").mkdir()
    (folder / "baselines" / "fast.py").write_text("")
    found = grown(tree(walls, folder, {"kernel/kernel.py": TRITON}, build=Build(readable=("**",))))
    assert sorted(file.path for file in found.files) == ["kernel/keepfast_tunables.py", "kernel/kernel.py", "lib/helper.py"]


def test_the_first_mistake_in_python_has_its_line(walls: Walls, folder: Path) -> None:
    assert rejected(tree(walls, folder, {"kernel/kernel.py": TRITON + "def f(:\n"})) == "kernel.py:7: invalid syntax"
    other = {"kernel/kernel.py": TRITON, "kernel/more.py": "x = (\n"}
    assert rejected(tree(walls, folder, other)) == "more.py:1: '(' was never closed"
    deep = {"kernel/kernel.py": "x = " + "(" * 5000 + ")" * 5000}
    assert "kernel.py:1: " in rejected(tree(walls, folder, deep))


def test_a_tree_is_known_by_its_files(walls: Walls, folder: Path) -> None:
    first = grown(tree(walls, folder, {"kernel/kernel.py": TRITON}))
    assert grown(tree(walls, folder, {"kernel/kernel.py": TRITON})).code_hash == first.code_hash
    assert grown(tree(walls, folder, {"kernel/kernel.py": TRITON + "# more\n"})).code_hash != first.code_hash
    assert grown(tree(walls, folder, {"kernel/kernel.py": TRITON}, language="torch")).code_hash != first.code_hash


def test_a_tree_of_another_language(walls: Walls, folder: Path) -> None:
    said = rejected(tree(walls, folder, {"kernel/kernel.cu": CUDA}), Reason.LANGUAGE)
    assert said == "kernel/kernel.cu is none of triton"


def test_tunables_and_sizes_are_looked_at_as_ever(walls: Walls, folder: Path) -> None:
    files = {"kernel/kernel.py": TRITON, "kernel/tunables.toml": b"[B]\nchoices = [1]\nvalue = 2\n"}
    rejected(tree(walls, folder, files, tunables="kernel/tunables.toml"), Reason.BAD_TUNABLES)
    rejected(tree(walls, folder, {"kernel/kernel.py": b"#" * 100_000_000}), Reason.TOO_BIG)


@needs_nvcc
def test_cuda_exports_the_shim_and_nothing_else(walls: Walls, folder: Path) -> None:
    found = grown(tree(walls, folder, {"kernel/kernel.cu": CUDA}, "cuda"))
    assert found.library == folder / "library.so"
    library = ctypes.CDLL(str(found.library))
    assert library.keepfast_call
    assert not hasattr(library, "kernel")
    assert not hasattr(library, "cudaLaunchKernel")
    assert "Used" in found.log
    assert [file.path for file in found.files] == ["kernel/kernel.cu"]


@needs_nvcc
def test_what_nvcc_and_ptxas_say(walls: Walls, folder: Path) -> None:
    assert rejected(tree(walls, folder, {"kernel/kernel.cu": CUDA.replace("= x[i]", "= y[i]")}, "cuda")) == (
        'kernel.cu:4: identifier "y" is undefined'
    )
    assembly = CUDA.replace("    if (i", '    asm volatile("tcgen05.fence::before_thread_sync;");\n    if (i')
    assert "ptxas: Instruction 'tcgen05.fence' not supported on" in rejected(tree(walls, folder, {"kernel/kernel.cu": assembly}, "cuda"))
    large = CUDA.replace(
        "    int64_t i", "    __shared__ float s[100000];\n    s[threadIdx.x] = x[0];\n    out[0] = s[(int)x[1]];\n    int64_t i"
    )
    assert "uses too much shared data" in rejected(tree(walls, folder, {"kernel/kernel.cu": large}, "cuda"))
    missing = '#include "gone.h"\n' + CUDA
    assert rejected(tree(walls, folder, {"kernel/kernel.cu": missing}, "cuda")).startswith("kernel.cu:1: gone.h: No such file")


@needs_nvcc
def test_nvcc_does_not_see_the_reference(walls: Walls, folder: Path) -> None:
    assert "No such file" in rejected(tree(walls, folder, {"kernel/kernel.cu": f'#include "../reference.py"\n{CUDA}'}, "cuda"))


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_an_extension_of_torch(walls: Walls, folder: Path) -> None:
    """Compiled only: what loads it is the capture."""
    text = "#include <torch/library.h>\nat::Tensor same(const at::Tensor &x) { return x; }\n"
    files = {"kernel/kernel.py": TRITON, "kernel/ext.cpp": text + 'TORCH_LIBRARY(mine, m) { m.def("same(Tensor x) -> Tensor", same); }\n'}
    for path, data in files.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(data)
    found = grown(tree(walls, folder, files, "torch", build=Build(flags=("-O0",), sources=("kernel/ext.cpp",))))
    assert found.library is not None
    assert found.library.stat().st_size > 1000
