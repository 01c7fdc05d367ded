"""Onboarding: the example runs as it is, and C functions of many shapes are called where they stand."""

from __future__ import annotations

import ctypes
import runpy
import shutil
import struct
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from keepfast.errors import KeepfastError, TaskError, UsageError
from keepfast.model import Task
from keepfast.task import abi, places, tunables
from keepfast.task.load import load
from keepfast.task.onboard import Origin, init, init_from

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")

SOURCE = """\
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include "types.h"
/* void scale(int wrong) { } */
typedef struct { float p; int i; } Pair;
static const float table[] = {1, 2, 3};
#define API __attribute__((visibility("default")))

API void scale(float* o, float* x, float* weight, int size) {
    for (int j = 0; j < size; j++) { o[j] = weight[j] * x[j] * 2.0f; }
}
void halve(float *x, int size) { for (int i = 0; i < size; i++) x[i] /= 2; }
int largest(float* p, int n) { int b = 0; for (int i = 1; i < n; i++) if (p[i] > p[b]) b = i; return b; }
static inline real dot(const real *restrict a, const real *restrict b, size_t n) {
    real s = 0;
    for (size_t i = 0; i < n; i++) s += a[i] * b[i];
    return s;
}
int gemm(int m, int n, int k, real alpha, const real *A, int lda, const real *B, int ldb, real beta, real *C, int ldc)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            real s = 0;
            for (int l = 0; l < k; l++) s += A[i * lda + l] * B[l * ldb + j];
            C[i * ldc + j] = alpha * s + beta * C[i * ldc + j];
        }
    return 0;
}
void rows(int n, int m, double A[n][m], const double x[m], double y[n]) {
    for (int i = 0; i < n; i++) { y[i] = 0; for (int j = 0; j < m; j++) y[i] += A[i][j] * x[j]; }
}
void kernel(unsigned char *in, unsigned long long len, uint8_t key, uint8_t *out) {
    for (unsigned long long i = 0; i < len; i++) out[i] = in[i] ^ key;
}
void by_address(const int *n, double *x) { for (int i = 0; i < *n; i++) x[i] += 1; }
void of_pairs(Pair *pairs, int n) { pairs[0].i = n; }
void of_rows(float **x, int n) { x[0][0] = n; }
void of_anything(void *x, int n) { for (int i = 0; i < n; i++) ((float *)x)[i] = 0; }
int main(int argc, char **argv) { return argc + (argv == 0); }
"""
ORACLES = """\
import numpy as np


def scale(x, weight, factor=2.0):
    return x * weight * factor


def gemm(A, B, C, alpha, beta):
    return alpha * A @ B + beta * C


def largest(first):
    return np.argmax(first)


def sized(x, weight, size):
    return 2 * x[:size] * weight


def three(a, b, c):
    return a
"""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose names have spaces and Unicode, with a C file and NumPy functions; also the current folder."""
    top = tmp_path / "my répo"
    (top / ".git").mkdir(parents=True)
    (top / "src lib").mkdir()
    (top / "src lib" / "kernels.c").write_text(SOURCE)
    (top / "src lib" / "types.h").write_text("#include <stdint.h>\n#include <stddef.h>\ntypedef double real;\n")
    (top / "oracles.py").write_text(ORACLES)
    monkeypatch.chdir(top)
    return top


def onboard(symbol: str, signature: str, case: str = "n=64", **more: Any) -> Task:
    folder = Path("tasks") / f"tâsk {symbol}"
    init_from(folder, Origin(source=f"src lib/kernels.c:{symbol}", signature=signature, cases=(case,), **more))
    return load(folder)


def arrays(task: Task) -> tuple[dict[str, Any], dict[str, Any]]:
    """inputs() of the first case, and what the kernel's results start as."""
    module = runpy.run_path(f"{task.folder}/reference.py")
    case = SimpleNamespace(name=task.cases[0].name, **dict(task.cases[0].axes))
    inputs = module["inputs"](case, np.random.default_rng(0))
    if task.oracle == "frozen":
        return inputs, module["outputs"](case) if task.signature.outputs else {}
    found = module["reference"](**{k: v.copy() if isinstance(v, np.ndarray) else v for k, v in inputs.items()})
    return inputs, {r.name: np.zeros_like(found) for r in task.signature.outputs}


def compiled(task: Task, dtypes: dict[str, str], out: Path, frozen: bool = False) -> ctypes.CDLL:
    """The task's kernel, or the frozen one, built with the same entry, ABI and flags."""
    root = Path(task.root)
    if frozen:
        root = out / "frozen tree"
        shutil.copytree(task.root, root, ignore=shutil.ignore_patterns("build", "frozen tree"))
        for file in places.frozen(task):
            (root / file.path).write_bytes(file.data)
    (out / "keepfast.h").write_text(abi.header(task, dtypes))
    (out / "shim.c").write_text(abi.shim(task, dtypes))
    space = tunables.parse((root / task.tunables).read_text() if task.tunables else "")
    (out / "keepfast_tunables.h").write_text(tunables.header(space))
    library = out / ("frozen.so" if frozen else "kernel.so")
    sources = [str(root / task.entry_path), str(out / "shim.c")]
    flags = [*task.build.flags, "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-fvisibility=hidden", "-Wl,-z,defs"]
    subprocess.run(["gcc", *flags, f"-I{out}", *sources, "-o", str(library), *task.build.libs], check=True)
    return ctypes.CDLL(str(library))


def called(task: Task, tmp_path: Path, frozen: bool = False) -> dict[str, np.ndarray]:
    """What the built kernel makes of inputs(): every result by name."""
    inputs, outputs = arrays(task)
    values = {**inputs, **outputs, **dict(task.cases[0].axes), "stream": 0}
    dtypes = {n: str(v.dtype) for n, v in values.items() if isinstance(v, np.ndarray)}
    words = (ctypes.c_uint64 * 32)(*(_word(values[name]) for name in abi.words(task)))
    library = compiled(task, dtypes, tmp_path, frozen)
    assert library.keepfast_call(words) == 0
    return {name: values[name] for name in task.signature.results}


def _word(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return int(value.ctypes.data)
    return int(struct.unpack("<Q", struct.pack("<d", value))[0]) if isinstance(value, float) else int(value)


@needs_gcc
def test_the_example_is_right_as_it_is_written(tmp_path: Path) -> None:
    written = init(tmp_path / "first task é")
    task = load(tmp_path / "first task é")
    assert {p.name for p in written} == {"task.toml", "reference.py", "kernel.c", "tunables.toml", "numpy.py"}
    inputs, _ = arrays(task)
    expected = np.sqrt((inputs["x"].astype(np.float64) ** 2).sum(axis=1))
    np.testing.assert_allclose(called(task, tmp_path)["out"], expected, rtol=1e-4)
    out = np.zeros_like(expected, np.float32)
    runpy.run_path(f"{task.folder}/{task.baselines[0].path}")["kernel"](inputs["x"], out)
    np.testing.assert_allclose(out, expected, rtol=1e-5)


@needs_gcc
def test_oracle_function_in_another_argument_order(repository: Path, tmp_path: Path) -> None:
    task = onboard("scale", "scale(Tensor x, Tensor weight) -> Tensor o", "size=8,4096", oracle="oracles.py:scale")
    inputs, _ = arrays(task)
    assert task.oracle == "reference"
    assert task.root == str(repository)
    assert task.editable == ("src lib/kernels.c",)
    assert [c.name for c in task.cases] == ["size8", "size4096"]
    np.testing.assert_array_equal(called(task, tmp_path)["o"], inputs["x"] * inputs["weight"] * 2)


@needs_gcc
def test_oracle_gets_an_axis_from_a_shape(repository: Path, tmp_path: Path) -> None:
    task = onboard("scale", "scale(Tensor x, Tensor weight) -> Tensor o", "size=8", oracle="oracles.py:sized")
    assert "size=x.shape[0]" in (Path(task.folder) / "reference.py").read_text()
    assert called(task, tmp_path)["o"].shape == (8,)


@needs_gcc
def test_in_place_with_frozen_sources(repository: Path, tmp_path: Path) -> None:
    task = onboard("halve", "halve(Tensor(a!) x) -> ()", "size=64")
    inputs, _ = arrays(task)
    before = inputs["x"].copy()
    assert task.oracle == "frozen"
    assert [f.path for f in places.frozen(task)] == ["src lib/kernels.c"]
    assert "not proven right" in (Path(task.folder) / "task.toml").read_text()
    np.testing.assert_array_equal(called(task, tmp_path)["x"], before / 2)
    (repository / "src lib" / "kernels.c").write_text(SOURCE.replace("x[i] /= 2", "x[i] /= 4"))
    np.testing.assert_array_equal(called(load(Path(task.folder)), tmp_path, frozen=True)["x"], before / 2)


@needs_gcc
def test_a_returned_number_is_the_output(repository: Path, tmp_path: Path) -> None:
    task = onboard("largest", "largest(Tensor p) -> Tensor")
    found = called(task, tmp_path)["out"]
    assert found.dtype == np.int32
    assert found.shape == (1,)
    assert found[0] == arrays(task)[0]["p"].argmax()
    assert task.argument("out").dtype == "int32"


@needs_gcc
def test_a_returned_number_with_an_oracle(repository: Path, tmp_path: Path) -> None:
    task = onboard("largest", "largest(Tensor p) -> Tensor", oracle="oracles.py:largest")
    expected = runpy.run_path(f"{task.folder}/reference.py")["reference"](arrays(task)[0]["p"])
    assert expected.dtype == np.int32
    assert expected.shape == (1,)
    assert called(task, tmp_path)["out"] == expected


@needs_gcc
def test_static_function_with_a_typedef_of_a_header(repository: Path, tmp_path: Path) -> None:
    task = onboard("dot", "dot(Tensor a, Tensor b) -> Tensor")
    inputs, _ = arrays(task)
    assert inputs["a"].dtype == np.float64
    assert task.build.readable == ("src lib/types.h",)
    assert task.tolerance.reduction == "n"
    np.testing.assert_allclose(called(task, tmp_path)["out"], inputs["a"] @ inputs["b"])


@needs_gcc
def test_parameters_bound_by_hand(repository: Path, tmp_path: Path) -> None:
    task = onboard(
        "gemm",
        "gemm(Tensor A, Tensor B, Tensor(a!) C, float alpha=1.5, float beta=0.5) -> ()",
        "m=3 n=4 k=5",
        oracle="oracles.py:gemm",
        shapes=("A=m,k", "B=k,n", "C=m,n"),
        bind=("lda=k", "ldb=n", "ldc=n"),
    )
    inputs, _ = arrays(task)
    expected = runpy.run_path(f"{task.folder}/reference.py")["reference"](**inputs)
    assert task.tolerance.reduction == "k"
    np.testing.assert_allclose(called(task, tmp_path)["C"], expected)


@needs_gcc
def test_variable_length_array_parameters(repository: Path, tmp_path: Path) -> None:
    task = onboard("rows", "rows(Tensor A, Tensor x) -> Tensor y", "n=3 m=5", shapes=("x=m", "y=n"))
    inputs, _ = arrays(task)
    np.testing.assert_allclose(called(task, tmp_path)["y"], inputs["A"] @ inputs["x"])


@needs_gcc
def test_a_function_called_kernel_and_a_python_word_as_parameter(repository: Path, tmp_path: Path) -> None:
    task = onboard("kernel", "cipher(Tensor text, int key=90) -> Tensor out", "len=64", bind=("in=text",))
    assert task.entry_symbol == "call_kernel"
    np.testing.assert_array_equal(called(task, tmp_path)["out"], arrays(task)[0]["text"] ^ 90)


@needs_gcc
def test_numbers_by_address(repository: Path, tmp_path: Path) -> None:
    task = onboard("by_address", "f(Tensor(a!) x) -> ()")
    before = arrays(task)[0]["x"].copy()
    np.testing.assert_array_equal(called(task, tmp_path)["x"], before + 1)


@needs_gcc
def test_an_element_type_that_c_does_not_say(repository: Path, tmp_path: Path) -> None:
    task = onboard("of_anything", "zero(Tensor(a!) x) -> ()", dtypes=("x=float32",))
    assert not called(task, tmp_path)["x"].any()


@needs_gcc
def test_cpp(repository: Path, tmp_path: Path) -> None:
    text = "template <class T> T one(T x) { return x + 1; }\nvoid add(float *x, int n) { x[n - 1] = one(x[n - 1]); }\n"
    (repository / "add.cpp").write_text(text)
    init_from(Path("tasks/add"), Origin("add.cpp:add", "add(Tensor(a!) x) -> ()", ("n=8",)))
    task = load(Path("tasks/add"))
    before = arrays(task)[0]["x"].copy()
    assert task.entry_path == "tasks/add/adapter.cpp"
    assert called(task, tmp_path)["x"][-1] == before[-1] + 1


def project(repository: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_text(text)


@needs_gcc
def test_a_template_that_another_file_includes(repository: Path, tmp_path: Path) -> None:
    """What may be changed is the file that the function stands in."""
    body = "int NAME(TYPE, _double)(const TYPE *x, TYPE *y, size_t n, MODE mode) { if (n) y[n - 1] = 2 * x[n - 1]; return mode != ON; }\n"
    head = "#include <stddef.h>\ntypedef enum { OFF, ON } MODE;\n#define PASTE(a, b) a##b\n#define NAME(a, b) PASTE(a, b)\n"
    project(repository, {"c/all.c": f'{head}#define TYPE float\n#include "body.template.c"\n', "c/body.template.c": body})
    init_from(Path("tasks/t"), Origin("c/all.c:float_double", "f(Tensor x, int mode=1) -> Tensor y", ("n=8",)))
    task = load(Path("tasks/t"))
    assert (task.editable, task.build.readable) == (("c/body.template.c",), ("c/all.c",))
    assert [f.path for f in places.frozen(task)] == ["c/body.template.c"]
    assert called(task, tmp_path)["y"][-1] == 2 * arrays(task)[0]["x"][-1]


@needs_gcc
def test_old_style_and_pointer_types(repository: Path, tmp_path: Path) -> None:
    head = "#define EXPORT(type) extern type\ntypedef double *BOX;\ntypedef unsigned long word;\n"
    body = "EXPORT(word) total(at, box, n) word at; BOX box; unsigned n; { while (n--) at += box[n] > 0; return at; }\n"
    project(repository, {"old.h": head, "old.c": f'#include "old.h"\n{body}'})
    init_from(Path("tasks/t"), Origin("old.c:total", "f(Tensor box, int at=5) -> Tensor", ("n=100",), flags=("-Wno-old-style-definition",)))
    task = load(Path("tasks/t"))
    found = called(task, tmp_path)["out"]
    assert found.dtype == np.uint64
    assert found[0] == 5 + (arrays(task)[0]["box"] > 0).sum()


@needs_gcc
def test_functions_that_nobody_calls_need_no_other_files(repository: Path, tmp_path: Path) -> None:
    project(
        repository, {"two.c": "void elsewhere(void);\nvoid other(void) { elsewhere(); }\nvoid one(float *x, int n) { x[n - 1] = 1; }\n"}
    )
    init_from(Path("tasks/t"), Origin("two.c:one", "f(Tensor(a!) x) -> ()", ("n=8",)))
    assert called(load(Path("tasks/t")), tmp_path)["x"][-1] == 1


@needs_gcc
def test_include_folders_and_headers_of_further_sources(repository: Path) -> None:
    project(
        repository,
        {
            "lib/a.c": "#include <lib/a.h>\nvoid a(float *x, int n) { b(x, n); }\n",
            "lib/a.h": "void b(float *, int);\n",
            "lib/b.c": '#include "b.h"\nvoid b(float *x, int n) { x[0] = n; }\n',
            "lib/b.h": "void b(float *, int);\n",
        },
    )
    with pytest.raises(TaskError, match=r"includes `lib/a.h`, which is not found\n  --include \.$"):
        init_from(Path("tasks/t"), Origin("lib/a.c:a", "f(Tensor(a!) x) -> ()", ("n=8",)))
    init_from(Path("tasks/t"), Origin("lib/a.c:a", "f(Tensor(a!) x) -> ()", ("n=8",), include=(".",), sources=("lib/b.c",)))
    build = load(Path("tasks/t")).build
    assert (build.include, build.sources, build.readable) == ((".",), ("lib/b.c",), ("lib/a.h", "lib/b.h"))


@needs_gcc
def test_a_header_that_builds_cannot_read(repository: Path) -> None:
    (repository.parent / "elsewhere").mkdir()
    (repository.parent / "elsewhere" / "far.h").write_text("#define FAR 1\n")
    (repository / "near.c").write_text("#include <far.h>\nvoid near(float *x, int n) { x[0] = FAR + n; }\n")
    origin = Origin("near.c:near", "f(Tensor(a!) x) -> ()", ("n=8",), flags=(f"-I{repository.parent / 'elsewhere'}",))
    with pytest.raises(TaskError, match=r"far.h: is outside the repository, where builds cannot read it\n  Install it"):
        init_from(Path("tasks/t"), origin)


@pytest.mark.parametrize(("given", "flags"), [((), ("-O2",)), (("-DX",), ("-O2", "-DX")), (("-O3", "-DX"), ("-O3", "-DX"))])
def test_optimisation_is_on_unless_it_is_said(repository: Path, given: tuple[str, ...], flags: tuple[str, ...]) -> None:
    task = onboard("halve", "halve(Tensor(a!) x) -> ()", "size=8", flags=given)
    assert task.build.flags == (*flags, "-ffunction-sections", "-Wl,--gc-sections")


def test_nothing_is_left_to_write_by_hand(repository: Path) -> None:
    onboard("scale", "scale(Tensor x, Tensor weight) -> Tensor o", "size=8")
    texts = [p.read_text() for p in Path("tasks").rglob("*") if p.is_file() and "frozen" not in p.parts]
    assert not any(word in text for text in texts for word in ("FIXME", "TODO", "..."))


REFUSALS: list[tuple[dict[str, Any], str, str]] = [
    ({"source": "src lib/kernels.c"}, "is not of the form --from FILE.c:FUNCTION", ""),
    ({"source": "src lib/gone.c:f"}, "gone.c does not exist", "Looked for"),
    ({"source": "oracles.py:scale"}, "is no C or C++ file", ""),
    ({"source": "src lib/kernels.c:scal"}, "no function `scal` is defined. Did you mean `scale`?", "Defined there: scale, halve"),
    ({"signature": "scale(Tensor x Tensor weight) -> Tensor o"}, "signature, column 16", "Example"),
    ({"signature": "scale(Tensor x) -> Tensor o"}, "has a parameter `weight` that is no argument, output or axis", "--bind weight="),
    ({"signature": "scale(Tensor x, Tensor weight, Tensor y) -> Tensor o"}, "has no parameter for `y`", "--bind PARAMETER=y"),
    ({"signature": "scale(Tensor x, Tensor weight) -> Tensor"}, "`o` that is no argument, output or axis. Did you mean", "--bind o="),
    ({"signature": "s(Tensor x, Tensor weight, float size) -> Tensor o", "cases": ("m=1",)}, "takes `size` as `int`", "Write `int size`"),
    ({"signature": "s(Tensor x, Tensor weight, Tensor size) -> Tensor o", "cases": ("m=1",)}, "has a tensor", "by hand"),
    ({"signature": "s(Tensor x, Tensor weight, int? size) -> Tensor o", "cases": ("m=1",)}, "cannot be told that `size` is absent", "`?`"),
    (
        {"source": "src lib/kernels.c:gemm", "signature": "g(Tensor(a!) A) -> ()"},
        "has parameters `m`, `n`, `k`, ",
        "--bind m=VALUE --bind n=",
    ),
    ({"source": "src lib/kernels.c:of_pairs", "signature": "f(Tensor(a!) pairs) -> ()", "cases": ("n=1",)}, "no element type", "--dtype"),
    ({"source": "src lib/kernels.c:of_rows", "signature": "f(Tensor(a!) x) -> ()", "cases": ("n=1",)}, "`x` as `float **`", "by hand"),
    ({"cases": ()}, "at least one case is needed", "--case"),
    ({"cases": ("size=a",)}, "`size=a` is not of the form AXIS=VALUE", "--case"),
    ({"cases": ("size=8", "n=8")}, "does not bind the same axes", ""),
    ({"cases": ("size=0",)}, "must be a whole number from 1", ""),
    ({"cases": ("size=" + ",".join(map(str, range(1, 90))),)}, "89 cases; at most 64", ""),
    ({"cases": ("int=8",)}, "`int` is a word of C", ""),
    ({"shapes": ("y=size",)}, "no tensor is called `y`", "Tensors: o, x, weight"),
    ({"shapes": ("x=size/2",)}, "is not a whole number above 0 in every case", "//"),
    ({"shapes": ("x=sizes",)}, "unknown name `sizes`. Did you mean `size`?", ""),
    ({"shapes": ("x",)}, "is not of the form NAME=VALUE", ""),
    ({"bind": ("wait=1",)}, "has no parameter `wait` to bind. Did you mean", "Its parameters: o, x, weight, size"),
    ({"bind": ("size=__import__('os')",)}, "cannot have `size` bound to", "a number"),
    ({"dtypes": ("x=float23",)}, "unknown dtype `float23`. Did you mean `float", "Known"),
    ({"oracle": "oracles.py:scal"}, "no function `scal` is defined. Did you mean `scale`?", ""),
    ({"oracle": "oracles.py:three"}, "takes a, b, c; the signature has x, weight", "same names"),
    ({"oracle": "oracle.py:scale"}, "oracle.py does not exist", ""),
    ({"include": ("/usr",)}, "/usr is not in", ""),
    ({"sources": ("gone.c",)}, "gone.c is not in", ""),
]


@pytest.mark.parametrize(("change", "what", "step"), REFUSALS, ids=[what for _, what, _ in REFUSALS])
def test_refusals_say_what_and_what_next_and_leave_nothing(repository: Path, change: dict[str, Any], what: str, step: str) -> None:
    given: dict[str, Any] = {
        "source": "src lib/kernels.c:scale",
        "signature": "scale(Tensor x, Tensor weight) -> Tensor o",
        "cases": ("size=8",),
    }
    before = sorted(repository.rglob("*"))
    with pytest.raises(KeepfastError) as caught:
        init_from(Path("tasks/one"), Origin(**given | change))
    assert what in caught.value.text()
    assert step in caught.value.text()
    assert caught.value.exit_code == 2
    assert sorted(repository.rglob("*")) == before


def test_const_that_must_be_written(repository: Path) -> None:
    with pytest.raises(TaskError, match="takes `a` as const, so it cannot write it"):
        onboard("dot", "dot(Tensor(a!) a, Tensor b) -> ()")


def test_outside_any_repository(tmp_path: Path) -> None:
    (tmp_path / "k.c").write_text("void f(float *x, int n) { x[0] = n; }")
    with pytest.raises(UsageError, match=r"is in no git repository(.|\n)*git init"):
        init_from(tmp_path / "t", Origin(f"{tmp_path / 'k.c'}:f", "f(Tensor(a!) x) -> ()", ("n=1",)))
    assert not (tmp_path / "t").exists()


def test_task_outside_the_repository_of_the_file(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not in the repository of kernels"):
        init_from(tmp_path / "t", Origin("src lib/kernels.c:halve", "halve(Tensor(a!) x) -> ()", ("size=1",)))


def test_a_folder_that_has_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "mine").write_text("mine")
    with pytest.raises(UsageError, match="exists already"):
        init(tmp_path / "t")
    assert [p.name for p in (tmp_path / "t").iterdir()] == ["mine"]


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write"):
        init(tmp_path / "file" / "task")
