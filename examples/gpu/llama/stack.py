"""A copy of this folder in which chosen entries of the decks lie over the starts, to be proven together without a run before it.

    python examples/gpu/llama/stack.py --out ../llama-stack [TASK=ENTRY ...] [--only TASK,TASK] [--quick]

ENTRY is the number or the whole name of a deck's entry: `linear=009`; several, in order: `attention_decode=001,002`; `start` leaves a task
as it is. Without any, CHOICE below. `--quick`: three rounds and no opponents, to see in minutes whether it runs. The copy is a repository
of its own, so that its proofs do not mix with those of kept kernels. It prints what to type next. Whatever is proven so was kept by nobody
yet: the judge has not seen it.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHOICE = {  # what reads best on paper, all of it launched early; nothing was measured yet
    "attention_decode": "005",
    "add_rms_norm": "004",
    "rotary_cache": "003",
    "mlp_activation": "004",
    "rms_norm": "004",
    "linear": "009",
}


def entry(task: str, name: str) -> Path:
    """The deck's entry of this number or name. SystemExit names those that there are."""
    found = sorted(p for p in (HERE / task / "deck").iterdir() if p.name == name or p.name.startswith(f"{name}-"))
    if len(found) != 1:
        known = ", ".join(sorted(p.name for p in (HERE / task / "deck").iterdir()))
        raise SystemExit(f"{task} has no entry `{name}`: start, {known}")
    return found[0]


def lay(task: str, names: str, folder: Path) -> None:
    """Puts entries over the task's kernel in `folder`, one after the other."""
    for name in names.split(",") if names != "start" else ():
        chosen = entry(task, name)
        if chosen.is_dir():
            shutil.copytree(chosen, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            subprocess.run(["git", "apply", "-p1", str(chosen)], cwd=folder, check=True)


def campaign(tasks: list[str]) -> str:
    """The campaign file with these tasks only."""
    head, *parts = (HERE / "campaign.toml").read_text(encoding="utf-8").split("[[task]]")
    return "[[task]]".join([head, *(part for part in parts if any(f'folder = "{task}"' in part for task in tasks))])


def hurried(text: str) -> str:
    """An `[engine]` with three rounds and no opponents."""
    return re.sub(r"(?m)^opponents = .*\n", "", re.sub(r"(?m)^rounds = \d+$", "rounds = 3", text))


def stack(out: Path, chosen: dict[str, str], *, quick: bool = False) -> None:
    """Writes the copy. `out` must not exist."""
    shutil.copytree(HERE, out, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(["git", "init", "--quiet"], cwd=out, check=True)
    for task, names in chosen.items():
        lay(task, names, out / task)
    (out / "campaign.toml").write_text(campaign(list(chosen)), encoding="utf-8")
    for path in (out / "campaign.toml", *(out / task / "task.toml" for task in chosen)) if quick else ():
        path.write_text(hurried(path.read_text(encoding="utf-8")), encoding="utf-8")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default=",".join(CHOICE), help="tasks, with commas between")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("choice", nargs="*", metavar="TASK=ENTRY")
    options = parser.parse_args(arguments)
    said = dict(word.partition("=")[::2] for word in options.choice)
    tasks = options.only.split(",")
    unknown = [name for name in (*said, *tasks) if name not in CHOICE]
    if unknown:
        parser.error(f"no task {', '.join(unknown)}; there are {', '.join(CHOICE)}")
    if options.out.exists():
        parser.error(f"{options.out} is there already")
    stack(options.out, {task: said.get(task, CHOICE[task]) for task in tasks}, quick=options.quick)
    several = f"--campaign {options.out}/campaign.toml" if len(tasks) > 1 else f"{options.out}/{tasks[0]}"
    print(f"keepfast e2e {several} --working-tree")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
