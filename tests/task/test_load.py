"""task.toml and its folder: what is read, and one message with file, line and next step for whatever is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from keepfast.errors import TaskError
from keepfast.model import Argument, Baseline, Budget, Build, Case, Goal, Limit
from keepfast.task import example, places
from keepfast.task.checks import refuse_unfit
from keepfast.task.file import line_of
from keepfast.task.load import load


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The example task in a repository, in a folder with a space and Unicode in its name."""
    (tmp_path / ".git").mkdir()
    top = tmp_path / "tasks" / "mein größter task"
    for name, text in example.FILES:
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text, encoding="utf-8")
    return top


def write(folder: Path, old: str, new: str, name: str = "task.toml") -> None:
    text = (folder / name).read_text(encoding="utf-8")
    assert old in text
    (folder / name).write_text(text.replace(old, new, 1), encoding="utf-8")


def refused(folder: Path) -> TaskError:
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    with pytest.raises(TaskError) as caught:
        load(folder)
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before
    return caught.value


def test_the_example(folder: Path) -> None:
    task = load(folder)
    assert task.name == "mein größter task"
    assert task.folder == task.root == str(folder)
    assert (task.entry_path, task.entry_symbol, task.editable) == ("kernel/kernel.c", "kernel", ("kernel/**",))
    assert task.cases == (
        Case("wide", (("m", 256), ("n", 4096)), 2.0),
        Case("narrow", (("m", 4096), ("n", 100))),
        Case("odd", (("m", 7), ("n", 33)), 1.0, "correct"),
    )
    assert task.weights() == pytest.approx((2 / 3, 1 / 3))
    assert task.arguments == (Argument("x"), Argument("out"))
    assert task.baselines == (Baseline("numpy", "baselines/numpy.py", "python"),)
    assert task.tunables == "kernel/tunables.toml"
    assert (task.goal, task.limit) == (Goal(2.0), Limit("4*m*n + 4*m"))
    assert task.build == Build(("-O3",), ("-lm",))
    refuse_unfit(task)


def test_defaults(folder: Path) -> None:
    (folder / "task.toml").write_text('schema = 1\nsignature = "f(Tensor x) -> Tensor"\naxes = ["n"]\n[[case]]\nn = 3\n')
    task = load(folder)
    assert task.cases == (Case("n3", (("n", 3),)),)
    assert (task.title, task.languages, task.threads, task.oracle) == (task.name, ("c",), 1, "reference")
    assert (task.entry_path, task.entry_symbol, task.editable) == ("kernel/kernel.c", "kernel", ("kernel/**",))
    assert (task.goal, task.budget, task.build) == (Goal(), Budget(), Build())


def test_all_keys(folder: Path) -> None:
    text = (folder / "task.toml").read_text().replace("threads = 1", 'threads = 2\nlanguages = ["c"]\nroot = "."\noracle = "reference"')
    more = """
    [arguments]
    x = { role = "weight", refresh = "whole", dtype = "float32" }
    out = { dtype = "float32" }
    [rules]
    cuda_graphs = "forbidden"
    library_kernels = "forbidden"
    """
    text = text.replace("[budget]\nexperiments = 200", "[budget]\nexperiments = 9\nhours = 1\ndollars = 0\ndry = 5") + more
    (folder / "task.toml").write_text(text)
    task = load(folder)
    assert task.argument("x") == Argument("x", "weight", "whole", "float32")
    assert task.budget == Budget(9, 1.0, 0.0, 5)
    assert task.rules.library_kernels == "forbidden"


def line(folder: Path, text: str, name: str = "task.toml") -> int:
    """Line on which `text` first stands."""
    return (folder / name).read_text(encoding="utf-8").split(text)[0].count("\n") + 1


# old text, new text, where the line is to be (text that stands on it), words of the message, words of the next step
BAD: list[tuple[str, str, str, str, str]] = [
    ("title", "titel", "titel", "unknown key `titel`. Did you mean `title`?", "Keys here: schema"),
    ("[tolerance]", "[toleranse]", "[toleranse]", "unknown key `toleranse`. Did you mean `tolerance`?", "Keys here"),
    ("reduction =", "reducton =", "reducton", "unknown key `reducton` in [tolerance]. Did you mean `reduction`?", "reduction, scale"),
    ("weight = 2.0", "wieght = 2.0", "wieght", "unknown key `wieght` in [[case]]. Did you mean `weight`?", "the axes (m, n)"),
    ("[goal]", "[arguments]\nx = { rolle = 'x' }\n[goal]", "rolle", "unknown key `rolle` in [arguments.x]. Did you mean `role`?", ""),
    ("schema = 1", "schema = 2", "schema = 2", "this keepfast reads `schema = 1`, not 2", ""),
    ("schema = 1\n", "", "", "`schema` is missing", "schema = 1"),
    ("threads = 1 ", "threads = '1' ", "threads", "`threads` must be a whole number, not text", ""),
    ("threads = 1 ", "threads = true ", "threads", "`threads` must be a whole number, not true or false", ""),
    ("threads = 1 ", "threads = 0 ", "threads", "`threads` must be from 1 to 1024", ""),
    ('["kernel/**"]', '"kernel/**"', "editable", "`editable` must be a list, not text", ""),
    ('["m", "n"]', '["m", 3]', "axes", "every element of `axes` must be text, not a whole number", ""),
    ("speedup = 2.0", "speedup = '2x'", "speedup", "`speedup` must be a number, not text", ""),
    ("speedup = 2.0", "speedup = 0.9", "speedup", "`speedup` must be above 1", ""),
    ("speedup = 2.0", "speedup = nan", "speedup", "`speedup` must be above 1", ""),
    ("speedup = 2.0", "limit = 1.5", "limit", "`limit` is a share of the physical limit", ""),
    ("speedup = 2.0", "over = 'stat'", "over = 'stat'", "`over` cannot be `stat`. Did you mean `start`?", '"baseline", "start"'),
    ("experiments = 200", "experiments = 0", "experiments", "`experiments` must be above 0", ""),
    ("experiments = 200", "dollars = -1", "dollars", "`dollars` must not be below 0", ""),
    ("[budget]", "[rules]\ncuda_graphs = 'require'\n[budget]", "cuda_graphs", "Did you mean `required`?", ""),
    ("[budget]", "[rules]\nlibrary_kernels = 'forbiden'\n[budget]", "library_kernels", "Did you mean `forbidden`?", 'as in "0.2"'),
    ("[budget]", "[rules]\nlibrary_kernels = '1.5'\n[budget]", "library_kernels", "`library_kernels` cannot be `1.5`", 'as in "0.2"'),
    ("[budget]", "[rules]\nlibrary_kernels = 0.2\n[budget]", "library_kernels", "`library_kernels` must be text, not a number", ""),
    ("schema = 1", "schema = 1\nrules = 3", "rules = 3", "`rules` must be a table, not a whole number", ""),
    ("schema = 1", "schema = ", "schema = ", "not TOML", "https://toml.io"),
    ("n = 4096\n", "", "[[case]]", "case `wide` does not bind axis `n`", "n = 1024"),
    ("m = 7", "m = 'seven'", "m = 'seven'", "case `odd`: `m` must be a whole number from 1", ""),
    ("m = 7", "m = 0", "m = 0", "case `odd`: `m` must be a whole number from 1", ""),
    ("m = 7", "m = true", "m = true", "case `odd`: `m` must be a whole number from 1", ""),
    ('use = "correct"', "use = 3", "use = 3", 'must be "time", "correct" or "both", not `3`', ""),
    ("weight = 2.0", "weight = 'a'", "weight = 'a'", "`weight` must be a number above 0", ""),
    ('"narrow"', "3", "name = 3", "`name` must be a text", ""),
    ("m = 7", "m = 7.5", "m = 7.5", "case `odd`: `m` must be a whole number from 1", ""),
    ("m = 7", "k = 7", "k = 7", "unknown key `k` in [[case]]", ""),
    ('"narrow"', '"wide"', 'name = "wide"\nm = 4096', "two cases are called `wide`", "name ="),
    ('"narrow"', '" x"', 'name = " x"', "at most 64 printable", ""),
    ("weight = 2.0", "weight = 0", "weight = 0", "case `wide`: `weight` must be a number above 0", ""),
    ('use = "correct"', 'use = "corect"', 'use = "corect"', 'must be "time", "correct" or "both", not `corect`', ""),
    ('["m", "n"]', '["m", "n", "for"]', "axes", "axis `for`: `for` is a word of C", ""),
    ('["m", "n"]', '["m", "n", "x"]', "axes", "`x` is both an axis and an argument", "Take `x` out of the signature"),
    ('["m", "n"]', '["m", "n", "use"]', "axes", "axis `use`: is a key of every case", ""),
    ('["m", "n"]', '["m", "n", "m"]', "axes", "an axis is named twice", ""),
    ("Tensor x)", "Tensor x, Tensr y)", "signature", "signature, column 21: keepfast has no type `Tensr`. Did you mean", "Example:"),
    ("-> Tensor", "", "signature =", "signature, column 21: expected `->`", "^"),
    ('"4*m*n + 4*m"', '"4*m*q"', "bytes", "[limit] bytes: expression `4*m*q`, column 5: unknown name `q`", ""),
    ('"4*m*n + 4*m"', '"m // (n - 33)"', "bytes", "divides by zero", ""),
    ('"4*m*n + 4*m"', '"m - n"', "bytes", "is below 0 for", ""),
    ('reduction = "n"', 'reduction = "n +"', "reduction", "column 4: expected a number", ""),
    ('reduction = "n"', "scale = 0", "scale", "`scale` must be above 0", ""),
    ("kernel.c:kernel", "kernel.c", "entry", "names no function", 'entry = "kernel/kernel.c:kernel"'),
    ("kernel.c:kernel", "kernel.c:for", "entry", "`for` is a word of C", ""),
    ("kernel.c:kernel", "gone.c:kernel", "entry", "kernel/gone.c does not exist", "change `entry` or `root`"),
    ("kernel/kernel.c:kernel", "reference.py:inputs", "entry", "`reference.py` is no file of c", ""),
    ("kernel/kernel.c:kernel", "../x.c:kernel", "entry", "must not contain `..`", ""),
    ("threads = 1 ", "languages = ['tritn'] ", "languages", "Did you mean `triton`?", '"c", "triton"'),
    ("threads = 1 ", "root = 'gone' ", "root = ", "`root` is no folder", ""),
    ("threads = 1 ", "root = '/' ", "root = ", "must be relative to the task folder", ""),
    ("threads = 1 ", "root = '../../..' ", "root = ", "leaves the repository", ""),
    ("threads = 1 ", "oracle = 'frozn' ", "oracle", "Did you mean `frozen`?", ""),
    ("threads = 1 ", "oracle = 'frozen' ", "oracle", "holds no file", "copies of the editable files"),
    ("threads = 1 ", "prepare = 'steps' ", "prepare", "Did you mean `step`?", ""),
    ('["kernel/**"]', "[]", "editable", "`editable` is empty", "kernel/**"),
    ('["kernel/**"]', '["/kernel/**"]', "editable", "must be relative to `root`", ""),
    ('["kernel/**"]', '["../**"]', "editable", "must not contain `..`", ""),
    ('["kernel/**"]', '["kernels/**"]', "editable", "kernels/**", ""),
    ('["kernel/**"]', '["kernel/**", "**"]', "editable", "`**` reaches task.toml, which is yours", "List only what may change"),
    ('["kernel/**"]', '["*.py"]', "editable", "`*.py` reaches reference.py", ""),
    ('["kernel/**"]', '["REFERENCE.py"]', "editable", "reaches reference.py", ""),
    ('["kernel/**"]', '["*/*.c"]', "editable", "`*/*.c` reaches baselines/", ""),
    ('["kernel/**"]', '["deck/new.patch"]', "editable", "reaches deck/", ""),
    ('["kernel/**"]', '["**/ideas.md"]', "editable", "reaches ideas.md", ""),
    ('["kernel/**"]', '["frozen/**"]', "editable", "reaches frozen/", ""),
    ('libs = ["-lm"]', 'sources = ["gone.c"]', "sources", "[build] sources: gone.c does not exist", ""),
    ('libs = ["-lm"]', 'include = ["gone"]', "include", "[build] include: gone is no folder", ""),
    ('libs = ["-lm"]', 'libs = [""]', "libs", "an element is empty", ""),
    ('libs = ["-lm"]', 'readable = ["**"]', "[build]", "`**` reaches reference.py, which a candidate's compiler must not see", ""),
    ('libs = ["-lm"]', 'readable = ["../*.h"]', "readable", "must not contain `..`", ""),
    ("[goal]", "[arguments]\ny = { role = 'weight' }\n[goal]", "y = {", "no argument or output is called `y`", "The signature has: x, out"),
    ("[goal]", "[arguments]\nx = { role = 'wait' }\n[goal]", "x = {", "`role` cannot be `wait`", '"weight"'),
    ("[goal]", "[arguments]\nx = { refresh = 'row' }\n[goal]", "x = {", "`refresh` cannot be `row`", '"element", "whole"'),
    ("[goal]", "[arguments]\nx = { dtype = 'float23' }\n[goal]", "x = {", "Did you mean `float32`?", ""),
    ("[goal]", "[arguments]\nx = { role = 'scratch' }\n[goal]", "x = {", "mark it `Tensor(a!)`", ""),
    ("[goal]", "[arguments]\nout = { role = 'weight' }\n[goal]", "out = {", "an output has no role", ""),
    ("[goal]", "[arguments]\nx = 'weight'\n[goal]", "x = 'weight'", "`x` must be a table, not text", ""),
]


@pytest.mark.parametrize(("old", "new", "place", "what", "step"), BAD, ids=[f"{new or old}" for old, new, *_ in BAD])
def test_one_message_with_line_and_next_step(folder: Path, old: str, new: str, place: str, what: str, step: str) -> None:
    write(folder, old, new)
    problem = refused(folder)
    assert what in problem.what
    assert step in problem.next_step
    assert problem.where == (f"task.toml:{line(folder, place)}" if place else "task.toml")
    assert problem.exit_code == 2


def test_scalars_have_no_dtype_and_few_roles(folder: Path) -> None:
    write(folder, "Tensor x)", "Tensor x, float eps=0.5)")
    write(folder, "[goal]", "[arguments]\neps = { role = 'weight' }\n[goal]")
    assert "a scalar cannot have the role `weight`" in refused(folder).what
    write(folder, "role = 'weight'", "dtype = 'float32'")
    assert "a scalar has no dtype" in refused(folder).what


def test_a_written_argument_is_no_weight(folder: Path) -> None:
    write(folder, "Tensor x)", "Tensor(a!) x)")
    write(folder, "[goal]", "[arguments]\nx = { role = 'weight' }\n[goal]")
    assert "a written argument cannot have the role `weight`" in refused(folder).what


def test_no_timed_case(folder: Path) -> None:
    (folder / "task.toml").write_text('schema = 1\nsignature = "f(Tensor x) -> Tensor"\n[[case]]\nuse = "correct"\n')
    assert "no case is timed" in refused(folder).what


def test_no_case(folder: Path) -> None:
    (folder / "task.toml").write_text('schema = 1\nsignature = "f(Tensor x) -> Tensor"\n')
    problem = refused(folder)
    assert (problem.what, "[[case]]" in problem.next_step) == ("`case` is missing", True)


@pytest.mark.parametrize("name", ["task.toml", "reference.py", "kernel/kernel.c"])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    problem = refused(folder)
    assert name in problem.what
    assert problem.next_step


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"no task.toml in .*gone(.|\n)*keepfast init gone"):
        load(tmp_path / "gone")


def test_not_utf8(folder: Path) -> None:
    (folder / "task.toml").write_bytes(b"schema = 1\ntitle = '\xff'\n")
    assert refused(folder).text().startswith("task.toml:2: not UTF-8")


def test_too_large(folder: Path) -> None:
    (folder / "task.toml").write_text("#" * 300_000)
    assert "larger than 256 KB" in refused(folder).what


def test_reference_must_be_python_with_both_functions(folder: Path) -> None:
    write(folder, "def reference(x)", "def referense(x)", "reference.py")
    assert refused(folder).text().startswith("reference.py: `reference` is not defined")
    write(folder, "def inputs(case, rng):", "def inputs(case, rng:", "reference.py")
    assert refused(folder).text().startswith(f"reference.py:{line(folder, 'def inputs', 'reference.py')}: not Python")


def test_reference_may_import_its_functions(folder: Path) -> None:
    (folder / "reference.py").write_text("from mine import inputs, f as reference\n")
    assert load(folder).oracle == "reference"


def test_tunables_are_read_with_the_task(folder: Path) -> None:
    write(folder, "value = 1", "value = 3", "kernel/tunables.toml")
    assert refused(folder).text().startswith("kernel/tunables.toml: LANES = 3 is not one of its declared values")


def test_tunables_must_be_editable(folder: Path) -> None:
    write(folder, '["kernel/**"]', '["kernel/*.c"]')
    problem = refused(folder)
    assert problem.where == "kernel/tunables.toml"
    assert 'Add "kernel/tunables.toml" to `editable`' in problem.next_step


def test_one_tunables_file(folder: Path) -> None:
    (folder / "kernel" / "more").mkdir()
    (folder / "kernel" / "more" / "tunables.toml").write_text("")
    assert "more than one tunables.toml" in refused(folder).what


def test_baselines(folder: Path) -> None:
    for name in ("fast.c", "plus.cpp", "gpu.cu", "_helper.py", "notes.md"):
        (folder / "baselines" / name).write_text("")
    assert [(b.name, b.language) for b in load(folder).baselines] == [("fast", "c"), ("gpu", "cuda"), ("numpy", "python"), ("plus", "c")]
    (folder / "baselines" / "numpy.c").write_text("")
    assert "two baselines are called `numpy`" in refused(folder).what


def test_root_above_the_task(folder: Path) -> None:
    repository = folder.parents[1]
    (repository / "src").mkdir()
    (repository / "src" / "k.c").write_text("")
    write(folder, '"kernel/kernel.c:kernel"', '"src/k.c:kernel"\nroot = "../.."')
    write(folder, '["kernel/**"]', '["src/**"]')
    task = load(folder)
    assert (task.root, task.entry_path, task.tunables) == (str(repository), "src/k.c", "")
    write(folder, '["src/**"]', '["tasks/**"]')
    assert "`tasks/**` reaches task.toml" in refused(folder).what
    write(folder, '["tasks/**"]', '["src/**", "tasks/*/baselines/x.c"]')
    assert "reaches baselines/" in refused(folder).what


def test_root_above_the_task_needs_a_repository(folder: Path) -> None:
    (folder.parents[1] / ".git").rmdir()
    write(folder, "threads = 1 ", "root = '..' ")
    assert "the task is in no git repository" in refused(folder).what


# --------------------------------------------------------------------------------------------- frozen oracle, hash, CPU


def freeze(folder: Path) -> None:
    (folder / "frozen" / "kernel").mkdir(parents=True)
    (folder / "frozen" / "kernel" / "kernel.c").write_text("int old;")
    write(folder, "threads = 1 ", "oracle = 'frozen' ")


def test_frozen_sources(folder: Path) -> None:
    freeze(folder)
    assert "`outputs` is not defined" in refused(folder).what
    write(folder, "def reference(x)", "def outputs(case)", "reference.py")
    assert [(f.path, f.data) for f in places.frozen(load(folder))] == [("kernel/kernel.c", b"int old;")]
    (folder / "frozen" / "other.c").write_text("")
    assert "frozen/other.c: no `editable` glob matches other.c" in refused(folder).what


def test_no_frozen_sources_with_a_reference(folder: Path) -> None:
    assert places.frozen(load(folder)) == ()


def test_what_changes_the_hash(folder: Path) -> None:
    first = load(folder).hash
    write(folder, "experiments = 200", "experiments = 3")
    write(folder, "# What to optimise.", "# Other comment.")
    (folder / "kernel" / "kernel.c").write_text("other")
    assert load(folder).hash == first
    seen = {first}
    for name in ("reference.py", "baselines/numpy.py"):
        (folder / name).write_text((folder / name).read_text() + "\n")
        seen.add(load(folder).hash)
    write(folder, "m = 7", "m = 8")
    seen.add(load(folder).hash)
    (folder / "baselines" / "numpy.py").rename(folder / "baselines" / "other.py")
    seen.add(load(folder).hash)
    assert len(seen) == 5


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("[goal]", "[arguments]\nx = { role = 'index' }\n[goal]", "the role `index` of `x` needs a GPU judge"),
        ("[goal]", "[arguments]\nx = { role = 'meta' }\n[goal]", "the role `meta` of `x` needs a GPU judge"),
        ("[goal]", "[arguments]\nx = { dtype = 'bfloat16' }\n[goal]", "`x` is bfloat16, which NumPy cannot hold"),
        (
            "threads = 1 ",
            "languages = ['c', 'triton'] ",
            "`c` is judged on a CPU and `triton` on a GPU: one task has languages of one kind",
        ),
        ("threads = 1 ", "prepare = 'step' ", "a `prepare` beside the entry needs a GPU judge"),
        ("[goal]", "[rules]\nlibrary_kernels = '0.2'\n[goal]", "a share of GPU time, which a CPU has not"),
        ("[goal]", "[rules]\ncuda_graphs = 'required'\n[goal]", "cannot be met on a CPU"),
    ],
)
def test_what_the_cpu_refuses_is_read_first(folder: Path, old: str, new: str, what: str) -> None:
    write(folder, old, new)
    task = load(folder)
    with pytest.raises(TaskError) as caught:
        refuse_unfit(task)
    assert what in caught.value.what


def test_scratch_is_read_and_refused(folder: Path) -> None:
    write(folder, "Tensor x)", "Tensor x, Tensor(a!) work)")
    write(folder, "[goal]", "[arguments]\nwork = { role = 'scratch' }\n[goal]")
    with pytest.raises(TaskError, match="the role `scratch` of `work`"):
        refuse_unfit(load(folder))


def test_a_prepare_beside_the_entry(folder: Path) -> None:
    write(folder, "int kernel(", "/* int prepare(void) { } */\nint kernel(", "kernel/kernel.c")
    refuse_unfit(load(folder))
    write(folder, "int kernel(", "int prepare(const float *w) { return 0; }\nint kernel(", "kernel/kernel.c")
    with pytest.raises(TaskError, match="a `prepare` beside the entry needs a GPU judge"):
        refuse_unfit(load(folder))


# --------------------------------------------------------------------------------------------- lines


def test_lines_of_keys() -> None:
    text = "# top\na = 1\n\n# about b\nb = [\n  1,\n  2,\n]\n[t]\n"
    text += "x = { y = 1, z = [\n2] }\n[[c]]\nn = 1\n[[c]]\nn = 2\n" + "d.e = '''\nb = 1\n'''\n"
    assert line_of(text, ("a",)) == 2
    assert line_of(text, ("b",)) == 5
    assert line_of(text, ("b", 1)) == 5
    assert line_of(text, ("t",)) == 9
    assert line_of(text, ("t", "x", "y")) == 10
    assert line_of(text, ("c", 0, "n")) == 13
    assert line_of(text, ("c", 1, "n")) == 15
    assert line_of(text, ("c", 1, "d", "e")) == 16
    assert line_of(text, ("t", "gone")) == 9
    assert line_of(text, ("gone",)) is None
