"""Hostile candidates in C: what each tries, where it does so, and which verdicts are right.

Attacks in C lie in hostile/NAME.c. The first lines say what is tried, the reasons that a right verdict may have, and the places where it
is tried:

    call         in the call
    signal       in a signal handler, in the call
    constructor  while the shared object is loaded
    init_array   the same, by a pointer in a section
    ifunc        while the loader resolves a symbol
    build        in the compiler: the text is the whole candidate

An attack in C returns 77 when nothing of it went through, and a number above 1000, the line, when something did. So `return-code` is
right only with 77. What the guard should see is made here. Must not know judges or how a machine is watched.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from keepfast.model import File, Reason, Verdict
from keepfast.redteam.entries import folders

ENTRY = "kernel/kernel.c"
REFUSED = "returned 77"
KERNEL = """
int kernel(const float *x, float *out, int64_t m, int64_t n, void *stream)
{
    (void)stream;
    X = x, OUT = out, M = m, N = n;
    CALL
    if (code == ALL_WELL) return 0;
    return code ? code : honest();
}
"""
SITES = {
    "call": ("", "int code = attack();"),
    "signal": ("static void handle(int s) { (void)s, found = attack(); }", "signal(SIGUSR1, handle), raise(SIGUSR1); int code = found;"),
    "constructor": ("__attribute__((constructor)) static void at_load(void) { found = attack(); }", "int code = found;"),
    "init_array": (
        """static void at_load(void) { found = attack(); }
__attribute__((section(".init_array"), used)) static void (*listed)(void) = at_load;""",
        "int code = found;",
    ),
    "ifunc": (
        """static int chosen(void) { return 0; }
static int (*choose(void))(void) { found = attack(); return chosen; }
int resolved(void) __attribute__((ifunc("choose")));""",
        "int code = resolved() ? 0 : found;",
    ),
}


class Places(Struct, frozen=True):
    """What an attacker may know of this machine: absolute paths, and the judge's process id."""

    task: str
    repository: str
    home: str
    judge: int


class Attack(Struct, frozen=True):
    """One hostile candidate. `text` is the attack in C; `files` are those of one that is not."""

    name: str
    site: str
    about: str
    right: tuple[Reason, ...]
    slow: bool = False
    text: str = ""
    files: tuple[File, ...] = ()

    @property
    def title(self) -> str:
        return f"{self.name} ({self.site})"


def corpus() -> tuple[Attack, ...]:
    """Every attack at every place: first each once, then the others."""
    found = [a for path in sorted(folders().hostile.glob("*.c")) for a in _read(path)]
    once = {a.name: a for a in reversed(found)}
    return (*(a for a in found if once[a.name] is a), *_for_the_guard(), *(a for a in found if once[a.name] is not a))


def kinds() -> tuple[Attack, ...]:
    """Each attack once, at its first place."""
    return tuple({a.name: a for a in reversed(corpus())}.values())[::-1]


def _read(path: Path) -> Iterator[Attack]:
    text = path.read_text()
    head = dict(re.findall(r"^// (expects|at|slow): (.+)$", text, re.M))
    about = text.splitlines()[0].removeprefix("// ")
    for site in head["at"].split():
        yield Attack(path.stem, site, about, tuple(Reason(r) for r in head["expects"].split()), "slow" in head, text)


def files_of(attack: Attack, places: Places) -> tuple[File, ...]:
    """The files of the candidate on this machine."""
    if attack.files:
        return attack.files
    known = {"TASK": places.task, "REFERENCE": f"{places.task}/reference.py", "REPOSITORY": places.repository, "HOME": places.home}
    parts = [f"#define {name} {json.dumps(value)}" for name, value in known.items()]
    parts.append(f"#define JUDGE {places.judge}")
    if attack.site == "build":
        return (File(ENTRY, "\n".join((*parts, attack.text)).encode()),)
    before, call = SITES[attack.site]
    parts += [
        (folders().hostile / "prelude.h").read_text(),
        f'#line 1 "{attack.name}.c"',
        attack.text,
        "static int found;",
        before,
        KERNEL.replace("CALL", call),
    ]
    return (File(ENTRY, "\n".join(parts).encode()),)


def wrong(attack: Attack, verdict: Verdict) -> str:
    """Why this is not the right verdict on it, or ""."""
    if verdict.reason not in attack.right:
        return f"{verdict.reason} ({verdict.detail}) is none of {', '.join(attack.right)}"
    if verdict.reason is Reason.RETURN_CODE and not verdict.detail.endswith(REFUSED):
        return f"an attempt went through: {verdict.detail}, which is 1000 and the line in {attack.name}.c"
    return ""


# --------------------------------------------------------------------------------------------- for the guard

SOURCE = b"int kernel(void) { return 0; }\n"
LARGE = b"/" * 2_000_000


def _for_the_guard() -> tuple[Attack, ...]:
    outside = (
        "../reference.py",
        "/etc/passwd",
        "task.toml",
        "reference.py",
        "kernel/../reference.py",
        "kernel/.git/hooks/post-commit",
        ".GIT/config",
    )
    made = [_guarded(f"path {path}", Reason.GUARD, File(ENTRY, SOURCE), File(path, b"owned\n")) for path in outside]
    many = (File(f"kernel/{n}.h", b"\n") for n in range(600))
    return (
        *made,
        _guarded("binary", Reason.GUARD, File(ENTRY, SOURCE), File("kernel/data.h", b"\0\1\2")),
        _guarded("names that differ by case", Reason.GUARD, File(ENTRY, SOURCE), File("kernel/KERNEL.c", SOURCE)),
        _guarded("a large file", Reason.TOO_BIG, File(ENTRY, LARGE + b"/" * 200_000)),
        _guarded("a hundred megabytes", Reason.TOO_BIG, File(ENTRY, SOURCE), *(File(f"kernel/{n}.c", LARGE) for n in range(50))),
        _guarded("six hundred files", Reason.TOO_BIG, File(ENTRY, SOURCE), *many),
        _guarded("a folder in place of the source", Reason.GUARD, File(f"{ENTRY}/kernel.c", SOURCE)),
        _guarded("folders deeper than allowed", Reason.GUARD, File(ENTRY, SOURCE), File(f"kernel/{'a/' * 30}x.h", b"\n")),
        _guarded("a name too long", Reason.GUARD, File(ENTRY, SOURCE), File(f"kernel/{'a' * 300}.h", b"\n")),
    )


def _guarded(about: str, right: Reason, *files: File) -> Attack:
    return Attack(f"guard: {about}", "files", about, (right,), files=files)


def places_of(task: str) -> Places:
    """This machine, with the repository that this file lies in."""
    return Places(task, str(Path(__file__).resolve().parents[3]), os.path.expanduser("~"), os.getpid())
