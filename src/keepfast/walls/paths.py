"""Which paths a wall opens, as `enter` wants them: real, none inside another, with the symbolic links that lead there.

Must not know processes. Paths that do not exist are left out: lists name what some systems have and others lack.
"""

from __future__ import annotations

import glob
import os
import stat
from pathlib import Path, PurePosixPath

from msgspec import Struct

# What the loader needs to start any dynamic program.
FOLDERS = ("/lib", "/lib32", "/lib64", "/libx32", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libx32")
LOADER = (*FOLDERS, "/etc/ld.so.cache", "/nix/store", "/gnu/store")
# What CUDA and torch ask of the machine. Of its PCI devices only NVIDIA's, see of_cards().
SYSTEM = ("/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/devices/system/memory/block_size_bytes")
PCI, NVIDIA = "/sys/bus/pci/devices", "0x10de"
MAX_LINKS = 40


class Opened(Struct, frozen=True):
    """`read`: real paths. `links`: (path, target) of each symbolic link met on the way from the paths asked for."""

    read: tuple[str, ...]
    links: tuple[tuple[str, str], ...]


def opened(paths: tuple[str, ...]) -> Opened:
    """Resolves `paths`; ValueError for a relative one, for one that would open the whole machine, or for a loop of links."""
    real: set[str] = set()
    links: dict[str, str] = {}
    for path in paths:
        found, on_the_way = _resolve(path)
        links.update(on_the_way)
        if os.path.exists(found):
            real.add(found)
    read = _outermost(real)
    return Opened(read, tuple((p, t) for p, t in sorted(links.items()) if not any(_inside(p, r) for r in read)))


def unreachable(path: str) -> str | None:
    """The first folder on the way to `path` that other users may not pass, or None."""
    for folder in reversed(Path(path).parents):
        if not folder.stat().st_mode & stat.S_IXOTH:
            return str(folder)
    return None


def of_cards() -> tuple[str, ...]:
    """What a process that uses an NVIDIA card reads below /sys."""
    cards = (path for path in glob.glob(f"{PCI}/*") if _first_line(f"{path}/vendor") == NVIDIA)
    return (*SYSTEM, *sorted(cards), *sorted(glob.glob("/sys/module/nvidia*")))


def nodes(devices: tuple[str, ...]) -> tuple[str, ...]:
    """The real paths of those that are device nodes here; ValueError for a relative one."""
    if wrong := [path for path in devices if not path.startswith("/")]:
        raise ValueError(f"walls open absolute paths only, not {wrong[0]!r}")
    real = dict.fromkeys(os.path.realpath(path) for path in devices)
    return tuple(path for path in real if os.path.exists(path) and stat.S_ISCHR(os.stat(path).st_mode))


def _first_line(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.readline().strip()
    except OSError:
        return ""


def _resolve(path: str) -> tuple[str, dict[str, str]]:
    if not path.startswith("/"):
        raise ValueError(f"walls open absolute paths only, not {path!r}")
    done, todo, links = "/", list(PurePosixPath(os.path.normpath(path)).parts[1:]), dict[str, str]()
    followed = 0
    while todo:
        step = os.path.join(done, todo.pop(0))
        if not os.path.islink(step):
            done = step
            continue
        links[step] = os.readlink(step)
        followed += 1
        if followed > MAX_LINKS:
            raise ValueError(f"too many symbolic links on the way to {path}")
        target = os.path.normpath(os.path.join(done, links[step]))
        done, todo = "/", list(PurePosixPath(target).parts[1:]) + todo
    if done == "/":
        raise ValueError(f"{path} would open the whole machine")
    return done, links


def _outermost(paths: set[str]) -> tuple[str, ...]:
    kept: list[str] = []
    for path in sorted(paths):
        if not any(_inside(path, other) for other in kept):
            kept.append(path)
    return tuple(kept)


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")
