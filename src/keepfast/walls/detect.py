"""How strong the walls of this machine are. Tried, never guessed: a small program is started inside each kind.

Owns the facts that `keepfast doctor` prints, each lack with what to do about it. Must not know what will run in the walls.
"""

from __future__ import annotations

import os
import subprocess
from typing import get_args

import msgspec

from keepfast import native
from keepfast.errors import MachineError, UsageError
from keepfast.model import Fact
from keepfast.walls import sweep
from keepfast.walls.base import UIDS, Mode, Strength, Wall, Walls, Want

NEXT_STEP = {
    "namespaces": "run as an ordinary user with user namespaces, or in a container with --cap-add SYS_ADMIN "
    "(and --security-opt apparmor=unconfined where AppArmor is on)",
    "user namespaces": "sysctl -w user.max_user_namespaces=10000; on Ubuntu 24.04 and later also "
    "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0; in a container --security-opt seccomp=unconfined",
    "landlock": "Linux 5.13 or later with `landlock` in the kernel's lsm= list; in a container a newer Docker or Podman",
    "seccomp": "a kernel with CONFIG_SECCOMP_FILTER",
    "quota": "needs namespaces: until then a candidate can fill the disk that holds its scratch folder",
}


def walls(want: Want) -> Walls:
    """See `Walls.detect`."""
    if want not in get_args(Want):
        raise UsageError(f"unknown strength of walls `{want}`", next_step=f"one of {', '.join(get_args(Want))}")
    enter = str(native.program("enter"))
    abi, seccomp = _features(enter)
    tried: dict[Mode, str] = {}
    for mode in _modes(want):
        found = Walls("walls", mode, abi, seccomp, enter)
        if not (why := _try(found)):
            return msgspec.structs.replace(found, facts=_facts(tried, found))
        tried[mode] = why
    if want == "walls":
        raise _lacking(tried)
    return _without_namespaces(want, enter, (abi, seccomp), tried)


def _modes(want: Want) -> tuple[Mode, ...]:
    if want in ("partial", "none"):
        return ()
    return ("root", "user") if os.getuid() == 0 else ("user",)


def _without_namespaces(want: Want, enter: str, features: tuple[int, bool], tried: dict[Mode, str]) -> Walls:
    sweep.adopt_orphans()
    abi, seccomp = features
    strength: Strength = "partial" if want != "none" and (abi or seccomp) else "none"
    if want == "partial" and strength == "none":
        raise MachineError("this kernel offers neither Landlock nor seccomp", next_step=NEXT_STEP["landlock"])
    if strength == "none":
        abi, seccomp = 0, False
    found = Walls(strength, "plain", abi, seccomp, enter)
    if why := _try(found):
        raise MachineError(f"cannot start a program even without namespaces: {why}", next_step="keepfast doctor")
    return msgspec.structs.replace(found, facts=_facts(tried, found))


def _features(enter: str) -> tuple[int, bool]:
    lines = subprocess.run([enter, "--probe"], capture_output=True, text=True, check=True).stdout.split()
    return int(lines[1]), lines[3] == "1"


def _try(walls: Walls) -> str | None:
    """Starts `enter --probe` inside; why that failed, or None."""
    scratch = walls.folder()
    try:
        with walls.spawn(Wall(profile="runner", scratch=str(scratch / "scratch")), (walls.program, "--probe")) as walled:
            status = walled.wait(10.0)
        return None if status == 0 else f"a first program ended with {status}"
    except MachineError as error:
        return error.what
    finally:
        if (scratch / "scratch").exists():
            (scratch / "scratch").rmdir()
        scratch.rmdir()


def _lacking(tried: dict[Mode, str]) -> MachineError:
    reasons = "; ".join(f"{mode}: {why}" for mode, why in tried.items())
    step = NEXT_STEP["user namespaces" if "root" not in tried else "namespaces"]
    return MachineError(f"no full walls on this machine ({reasons})", next_step=step)


def _facts(tried: dict[Mode, str], found: Walls) -> tuple[Fact, ...]:
    inside, wanted = found.mode != "plain", tried or found.mode != "plain"
    spaces = "PID, IPC, network, mount" if inside else _no("namespaces", tried.get("root", "") or ("" if wanted else "not asked for"))
    facts = [Fact("namespaces", spaces)]
    if found.mode == "user" or "user" in tried:
        facts.append(Fact("user namespaces", _no("user namespaces", tried["user"]) if "user" in tried else "yes"))
    unread = "" if inside else "what you can read, a candidate can read"
    facts.append(Fact("landlock", f"ABI {found.landlock}" if found.landlock else _no("landlock", unread)))
    facts.append(Fact("seccomp", "yes" if found.seccomp else _no("seccomp", "" if inside else "nothing denies the network")))
    facts.append(Fact("scratch quota", "tmpfs" if inside else _no("quota", "")))
    facts.append(Fact("uid", _uid(found)))
    return tuple(facts)


def _uid(found: Walls) -> str:
    if os.getuid() == 0 and found.mode != "user" and found.strength != "none" and sweep.mapped(UIDS):
        return "60000 to 64999, one for each process"
    return f"{os.getuid()}, your own" if os.getuid() else "0: run as an ordinary user, so that the limit on processes holds"


def _no(what: str, why: str) -> str:
    return f"no ({why}): {NEXT_STEP[what]}" if why else f"no: {NEXT_STEP[what]}"
