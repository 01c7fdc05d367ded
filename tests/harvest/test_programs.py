"""The program runs as ever, and what its function is called with is counted: in forks, threads, pytest, and when it is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import keepfast
from keepfast.harvest import host
from tests.harvest.conftest import Program, Shown


def test_the_exit_code_and_every_kind_of_call(program: Program) -> None:
    program.write("main.py", "import lib, sys\nfor i in range(5): lib.f(i % 2)\nlib.f(7, k=3, mode='other')\nsys.exit(41)\n")
    shown = program.python("lib:f", "main.py")
    assert shown.code == shown.captured.exit_code == 41
    assert (shown.calls, shown.captured.looked, shown.captured.processes, shown.captured.errors) == (6, 6, 1, 0)
    assert shown.of(x=0).seen == 3
    assert [(v.name, v.kind, v.text) for v in shown.of(x=7).values] == [("x", "int", "7"), ("k", "int", "3"), ("mode", "str", "other")]
    assert shown.of(x=1, k=2).estimate == 2  # the default counts as said
    assert shown.captured.file == str(program.folder / "lib.py")


def test_a_function_of_the_main_program_itself(program: Program) -> None:
    program.write(
        "main.py",
        "import os\ndef g(n):\n    return n\n\nif __name__ == '__main__':\n    for i in range(3): g(i)\n    raise SystemExit(9)\n",
    )
    shown = program.python("main.py:g", "main.py")
    assert (shown.code, shown.calls) == (9, 3)
    program.write("pkg/__init__.py", "")
    program.write("pkg/tool.py", "def g(n):\n    return n\ng(1)\ng(2)\n")
    assert program.capture("pkg.tool:g", sys.executable, "-m", "pkg.tool").calls == 2


def test_a_file_of_a_package_by_its_path_imported_by_its_name(program: Program) -> None:
    program.write("pkg/__init__.py", "from .inner import g\n")
    program.write("pkg/inner.py", "def g(n):\n    return n\n")
    program.write("main.py", "import pkg\nfrom pkg import g\ng(1)\npkg.g(2)\npkg.inner.g(3)\n")
    assert program.python("pkg/inner.py:g", "main.py").calls == 3
    program.write("main.py", "from pkg import inner\ninner.g(3)\n")
    assert program.python("pkg.inner:g", "main.py").calls == 1


def test_methods_of_every_sort(program: Program) -> None:
    program.write(
        "lib.py",
        """
        class Base:
            def up(self, n): return n
        class A(Base):
            def plain(self, n): return n
            @staticmethod
            def fixed(n): return n
            @classmethod
            def made(cls, n): return cls, n
        """,
    )
    program.write("main.py", """
        from lib import A, Base
        assert A().plain(1) == 1
        assert A.fixed(2) == A().fixed(2) == 2
        assert A.made(3) == (A, 3)
        assert A().up(4) == Base().up(4) == 4
        """)  # fmt: skip
    for name, calls in (("plain", 1), ("fixed", 2), ("made", 1), ("up", 1)):
        shown = program.python(f"lib:A.{name}", "main.py")
        assert (shown.code, shown.calls) == (0, calls), name
        assert [v.name for v in shown.captured.kinds[0].values] == ["n"], "neither self nor cls"


def test_recursion_generators_coroutines_and_exceptions(program: Program) -> None:
    program.write(
        "lib.py",
        """
        import inspect
        def deep(n): return 0 if n == 0 else 1 + deep(n - 1)
        def many(n):
            got = yield n
            yield got
        async def later(n): return n
        def fails(n): raise KeyError(n)
        """,
    )
    program.write(
        "main.py",
        """
        import asyncio, inspect, lib
        assert lib.deep(10) == 10
        made = lib.many(3)
        assert inspect.isgeneratorfunction(lib.many) and next(made) == 3 and made.send(5) == 5
        assert inspect.iscoroutinefunction(lib.later) and asyncio.run(lib.later(4)) == 4
        try:
            lib.fails("why")
        except KeyError as error:
            assert error.args == ("why",)
        """,
    )
    for name, calls in (("deep", 11), ("many", 1), ("later", 1), ("fails", 1)):
        shown = program.python(f"lib:{name}", "main.py")
        assert (shown.code, shown.calls, shown.captured.errors) == (0, calls, 0), name


def test_threads_lose_no_call(program: Program) -> None:
    program.write(
        "main.py",
        """
        import lib, threading
        def work(): [lib.f(n % 3) for n in range(500)]
        threads = [threading.Thread(target=work) for _ in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        """,
    )
    shown = program.python("lib:f", "main.py")
    assert (shown.calls, shown.captured.errors) == (2000, 0)
    assert sum(call.estimate for call in shown.captured.kinds) <= 2000


def test_forks_and_spawned_workers_are_counted_apart_and_put_together(program: Program) -> None:
    program.write(
        "main.py",
        """
        import lib, multiprocessing, os, sys
        def work(n): return lib.f(n)
        if __name__ == "__main__":
            lib.f(100)
            pid = os.fork()
            if pid == 0:
                lib.f(1), lib.f(100)
                os._exit(0)
            os.waitpid(pid, 0)
            for how in sys.argv[1:]:
                with multiprocessing.get_context(how).Pool(2) as pool:
                    assert pool.map(work, range(6)) == [0, 2, 4, 6, 8, 10]
            """,
    )
    shown = program.python("lib:f", "main.py", "fork", "spawn", "forkserver")
    assert (shown.code, shown.calls) == (0, 3 + 3 * 6)
    assert shown.of(x=100).seen == 2
    assert shown.of(x=1).seen == 4
    assert shown.captured.processes >= 6


def test_a_worker_whose_function_is_in_the_main_program(program: Program) -> None:
    program.write(
        "main.py",
        """
        import multiprocessing
        def g(n): return n
        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                assert pool.map(g, range(4)) == [0, 1, 2, 3]
            g(9)
        """,
    )
    shown = program.python("main.py:g", "main.py")
    assert shown.code == 0
    assert shown.of(n=9).seen == 1
    assert shown.calls in (1, 5)  # what is pickled is found by its name, in the worker's own main program


def test_a_python_below_a_shell(program: Program) -> None:
    program.write("main.py", "import lib, sys\nlib.f(int(sys.argv[1]))\n")
    script = f"cd / && {sys.executable} {program.folder}/main.py 5; exec {sys.executable} {program.folder}/main.py 6"
    shown = program.capture("lib:f", "sh", "-c", script)
    assert (shown.calls, shown.captured.processes) == (2, 2)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_program_loses_no_call(program: Program, number: int) -> None:
    program.write("main.py", f"import lib, os\nfor i in range(50): lib.f(1)\nos.kill(os.getpid(), {int(number)})\n")
    shown = program.python("lib:f", "main.py")
    assert shown.code == 128 + number
    assert shown.of(x=1).seen == shown.calls == 50


def test_pytest_is_a_program_too(program: Program) -> None:
    program.write("test_it.py", """
        import lib
        def helper(n): return n
        def test_one():
            assert lib.f(2) == 4
            assert helper(1) == 1
        def test_two():
            assert lib.f(3) == 7
        """)  # fmt: skip
    command = (sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py")
    shown = program.capture("lib:f", *command)
    assert (shown.code, shown.calls) == (1, 2)
    shown = program.capture("test_it.py:helper", *command)  # imported by pytest's own loader, with its assertions rewritten
    assert (shown.code, shown.calls) == (1, 1)


def test_the_sitecustomize_that_was_there_runs(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    program.write("sitecustomize.py", "import builtins\nbuiltins.was_here = True\n")
    program.write("main.py", "import lib, sys\nassert was_here\nassert not [p for p in sys.meta_path if p is None]\nlib.f(1)\n")
    shown = program.python("lib:f", "main.py")
    assert (shown.code, shown.calls) == (0, 1)


# --------------------------------------------------------------------------------------------- bounds, and what goes wrong


def test_a_huge_number_of_different_calls_stays_bounded_and_is_counted_honestly(program: Program) -> None:
    program.write("main.py", "import lib\nfor i in range(20000):\n    lib.f(i)\n    lib.f(-1)\n")
    shown = program.python("lib:f", "main.py")
    captured = shown.captured
    assert (shown.code, captured.calls) == (0, 40000)
    assert len(captured.kinds) <= 4096
    assert captured.looked <= captured.calls
    assert captured.unlisted + sum(c.estimate for c in captured.kinds) <= captured.calls
    assert shown.of(x=-1) is captured.kinds[0], "the common one is still there"
    assert captured.looked == captured.calls or any("estimates" in note for note in captured.notes)


def test_a_hook_that_breaks_leaves_the_program_alone(program: Program) -> None:
    program.write(
        "main.py",
        """
        import lib, shutil, sys
        class Odd:
            @property
            def __class__(self): raise RuntimeError("do not look at me")
        print(lib.f(2))
        shutil.rmtree(next(p for p in sys.argv[1:]))
        for value in (3, "text", 2.5): print(lib.f(value))
        try:
            lib.f(Odd())
        except TypeError:
            print("its own error")
        """,
    )
    work = program.folder / "work1" / "out"
    shown = program.python("lib:f", "main.py", str(work))
    assert shown.code == 0
    assert shown.captured.processes == 0
    assert any("never imported" in note for note in shown.captured.notes)


def test_an_argument_that_raises_when_it_is_looked_at(program: Program) -> None:
    program.write("lib.py", "def f(x): return 5\n")
    program.write(
        "main.py",
        """
        import lib
        class Odd:
            @property
            def __class__(self): raise RuntimeError("do not look at me")
        assert lib.f(Odd()) == 5
        assert lib.f(1) == 5
        """,
    )
    shown = program.python("lib:f", "main.py")
    assert (shown.code, shown.calls, shown.captured.errors) == (0, 2, 1)
    assert any("do not look at me" in note for note in shown.captured.notes)
    assert any("failed 1 times" in note for note in shown.captured.notes)


def test_a_broken_hook_folder_breaks_nothing(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    program.write("main.py", "import lib\nprint(lib.f(2))\n")
    real = host.prepare

    def broken(work: Path, wish: host.Wish) -> Path:
        site = real(work, wish)
        (site / "settings.json").write_text("{")
        return site

    monkeypatch.setattr(host, "prepare", broken)
    shown = program.python("lib:f", "main.py")
    assert (shown.code, shown.calls) == (0, 0)


@pytest.mark.parametrize(
    ("what", "note"),
    [
        ("lib:nothing", "defines no `nothing`"),
        ("lib:Thing.no", "has no method `no`"),
        ("other:f", "never imported"),
        ("json:loads", "never called"),
    ],
)
def test_what_was_not_found_is_said(program: Program, what: str, note: str) -> None:
    program.write("main.py", "import lib, json\nlib.f(1)\n")
    shown = program.python(what, "main.py")
    assert (shown.code, shown.calls) == (0, 0)
    assert any(note in one for one in shown.captured.notes), shown.captured.notes


def test_names_are_bound_as_python_does(program: Program) -> None:
    program.write("lib.py", "def f(a, /, b=1, *rest, c, d=None, **more): return a\n")
    program.write("main.py", "import lib\nlib.f(1, 2, 3, 4, c=5, e=6)\n")
    values = program.python("lib:f", "main.py").captured.kinds[0].values
    assert {v.name: v.text for v in values} == {"a": "1", "b": "2", "rest0": "3", "rest1": "4", "c": "5", "d": "", "e": "6"}


def kinds(shown: Shown) -> set[str]:
    return {v.kind for call in shown.captured.kinds for v in call.values}


def test_numbers_that_are_equal_and_not_the_same(program: Program) -> None:
    program.write(
        "main.py",
        "import lib\nfor x in (1, 1.0, True, None, 'a' * 5000, [1, (2, 3)], object()):\n    try: lib.f(x)\n    except TypeError: pass\n",
    )
    shown = program.python("lib:f", "main.py")
    assert shown.calls == len(shown.captured.kinds) == 7
    assert kinds(shown) == {"int", "float", "bool", "none", "str", "list", "other"}
    assert max(len(v.text) for c in shown.captured.kinds for v in c.values) == 200


def test_overhead_has_a_bound(program: Program) -> None:
    """Of calls that take nothing, most are only counted."""
    program.write("main.py", "import lib\nfor i in range(100000): lib.f(1)\n")
    captured = program.python("lib:f", "main.py").captured
    assert captured.calls == 100000
    assert captured.looked < captured.calls / 4


def test_a_command_that_is_not_there(program: Program) -> None:
    from keepfast.errors import UsageError

    with pytest.raises(UsageError, match="is not found"):
        program.capture("lib:f", "no-such-program-anywhere")


def test_a_signal_to_us_reaches_the_program(program: Program) -> None:
    program.write(
        "main.py",
        """
        import lib, signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
        lib.f(1)
        print("ready", flush=True)
        time.sleep(60)
        """,
    )
    command = [sys.executable, "-m", "keepfast", "capture", "lib:f", "--out", "d", "--", sys.executable, "main.py"]
    paths = os.pathsep.join([str(Path(keepfast.__file__).resolve().parents[1]), str(program.folder)])
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": paths})
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=50)
    assert process.returncode == 7, said
    assert "was called 1 times" in said
