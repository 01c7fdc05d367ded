"""What this process has seen: counts in a mapped file, so that a killed process loses none, and a few calls with their contents.

One folder a process: `log` (a JSON object a line), `counts` (numbers by slot), `s000` and so on (contents). Memory, disk and time are
bounded. Must not know how the function is found.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import struct
import sys
import threading
import time
from typing import Any

from . import values

HEADER = struct.Struct("<8Q")  # calls, looked at, in stream capture, traced, not listed, errors, mean gap, too large to keep
CALLS = struct.Struct("<Q")  # the first of them
SLOT = struct.Struct("<QQ")  # looked at, estimate of the calls
SLOTS = 4096  # kinds of call that are listed
SAMPLED = 64  # kinds of call of which contents are kept
EACH = 4  # calls of each such kind
LOG_BYTES = 32 << 20
AT_ONCE = 256  # calls that are looked at one by one before time counts
SHARE = 0.02  # of the time since the first call that looking may take
WIDEST = 4096  # calls from one look to the next, in the mean
CHECKED = 16 << 20  # bytes of a tensor that is compared after the call


class Kept:
    """A call whose contents are on disk. `draw`: the smallest of a kind are kept."""

    def __init__(self, number: int, slot: int, draw: float, size: int) -> None:
        self.number, self.slot, self.draw, self.size = number, slot, draw, size


class Tally:
    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.hooked: dict[str, Any] = {}
        self.local = threading.local()
        self._fresh()

    def _fresh(self) -> None:
        self.lock = threading.Lock()
        self.folder, self.log, self.map = "", -1, None  # type: str, int, Any
        self.header = [0, 0, 0, 0, 0, 0, 1, 0]
        self.slots: dict[values.Key, int] = {}
        self.seen = [[0, 0] for _ in range(SLOTS)]
        self.largest = -1, -1  # elements, slot
        self.kept: list[Kept] = []
        self.free = list(range(SLOTS - 1, -1, -1))
        self.made = -1  # the newest contents
        self.written = self.last = self.next = 0
        self.spent, self.began = 0.0, 0.0
        self.random = random.Random(self.settings["seed"])

    def forked(self) -> None:
        """In the child of a fork: its own folder, from its first call on."""
        hooked = self.hooked
        self._fresh()
        self.local = threading.local()
        if hooked:
            self.guarded(self.found, hooked)

    # ---------------------------------------------------------------------------------------- the one boundary

    def guarded(self, function: Any, *arguments: Any) -> Any:
        """None for a call from inside the hook itself, or when anything goes wrong in it."""
        if getattr(self.local, "busy", False):
            return None
        self.local.busy = True
        try:
            return function(*arguments)
        except values.Traced:  # no call of the program's
            with self.lock:
                self.header[0], self.last, self.header[3] = self.header[0] - 1, self.last - 1, self.header[3] + 1
                self._head()
        except Exception as error:  # noqa: BLE001  the hook must not break the program, whatever is wrong with it
            self._failed(error)
        finally:
            self.local.busy = False
        return None

    def _failed(self, error: Exception) -> None:
        self.header[5] += 1
        if self.header[5] == 1 and self.log >= 0:
            line = json.dumps({"problem": f"{type(error).__name__}: {error}"[:500]})
            os.write(self.log, line.encode("ascii", "replace") + b"\n")

    # ---------------------------------------------------------------------------------------- files

    def found(self, hooked: dict[str, Any]) -> None:
        """The function is wrapped; or `hooked` says in `problem` why not."""
        self.hooked = hooked
        self._open()
        self._write({"hooked": {**hooked, "pid": os.getpid(), "python": sys.version.split()[0]}})

    def _open(self) -> None:
        if self.folder:
            return
        for number in range(10000):
            folder = os.path.join(self.settings["out"], f"p{number:04}")
            try:
                os.mkdir(folder)
            except FileExistsError:
                continue
            self.random = random.Random(f"{self.settings['seed']}:{number}")
            break
        else:
            raise OSError("too many processes")
        self.log = os.open(os.path.join(folder, "log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with open(os.path.join(folder, "counts"), "w+b") as file:
            file.truncate(HEADER.size + SLOTS * SLOT.size)
            self.map = mmap.mmap(file.fileno(), 0)
        self.folder = folder

    def _write(self, line: dict[str, Any]) -> bool:
        data = json.dumps(line).encode() + b"\n"
        if self.written + len(data) > LOG_BYTES:
            return False
        self.written += len(data)
        os.write(self.log, data)
        return True

    def _count(self, slot: int) -> None:
        SLOT.pack_into(self.map, HEADER.size + slot * SLOT.size, *self.seen[slot])

    def _head(self) -> None:
        HEADER.pack_into(self.map, 0, *self.header)

    # ---------------------------------------------------------------------------------------- a call

    def before(self, names: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Counts the call. What is to be compared after it, or None."""
        with self.lock:
            count = self.header[0] = self.header[0] + 1
            CALLS.pack_into(self.map, 0, count)
            if count < self.next:
                return None
            weight = self.header[0] - self.last
            self.last = self.header[0]
        start = time.perf_counter()
        named = names(args, kwargs)
        key = tuple((name, values.key_of(value)) for name, value in named)
        parts = values.tensors(named)
        captured = values.capturing(parts)
        with self.lock:
            slot = self._looked(key, weight, captured)
            draw = self.random.random()
            wanted = slot >= 0 and not captured and bool(parts) and self._wanted(slot, draw)
        kept = self._keep(slot, draw, parts) if wanted else None
        self._took(start)
        return kept

    def _looked(self, key: values.Key, weight: int, captured: bool) -> int:
        if not self.header[1]:
            self.began = time.perf_counter()
            self._write({"versions": versions()})
        self.header[1] += 1
        self.header[2] += captured
        slot = self.slots.get(key, -1)
        if slot < 0:
            slot = self._listed(key)
        if slot < 0:
            self.header[4] += weight
        else:
            self.seen[slot][0] += 1
            self.seen[slot][1] += weight
            self._count(slot)
        self._head()
        return slot

    def _listed(self, key: values.Key) -> int:
        """A slot for a new kind of call: when all are taken, the rarer half is given up."""
        if not self.free:
            self._make_room()
        if not self.free or not self._write({"slot": self.free[-1], "values": [{"name": n, **values.plain(one)} for n, one in key]}):
            return -1
        self.slots[key] = slot = self.free.pop()
        size = sum(values.elements(one) for _, one in key)
        self.largest = max(self.largest, (size, slot))
        return slot

    def _make_room(self) -> None:
        safe = {kept.slot for kept in self.kept} | {self.largest[1]}
        ordered = sorted(self.slots.items(), key=lambda each: self.seen[each[1]][1])
        for key, slot in ordered[: SLOTS // 2]:
            if slot in safe:
                continue
            self.header[4] += self.seen[slot][1]
            self.seen[slot] = [0, 0]
            self._count(slot)
            self.free.append(slot)
            del self.slots[key]

    def _took(self, start: float) -> None:
        """How many calls pass until the next look: as many as keep looking to its share of the time."""
        with self.lock:
            now = time.perf_counter()
            self.spent += now - start
            gap = self.header[6]
            if self.header[1] > AT_ONCE and self.spent > SHARE * (now - self.began):
                gap = min(WIDEST, 2 * gap)
            elif gap > 1 and self.spent < SHARE / 2 * (now - self.began):
                gap //= 2
            self.header[6] = gap
            self.next = self.header[0] + (1 if gap == 1 else self.random.randint(1, 2 * gap - 1))

    # ---------------------------------------------------------------------------------------- contents

    def _wanted(self, slot: int, draw: float) -> bool:
        mine = [kept for kept in self.kept if kept.slot == slot]
        if not mine:
            return len({kept.slot for kept in self.kept}) < SAMPLED
        return len(mine) < EACH or draw < max(kept.draw for kept in mine)

    def _keep(self, slot: int, draw: float, parts: list[tuple[str, int, Any]]) -> Any:
        most = self.settings["bytes"]
        if sum(min(values.size_of(v), most) for _, _, v in parts) > most:
            most = values.EXCERPT * 16  # what is large comes as an excerpt, so that the rest can be kept
            self.header[7] += 1
        found, at, data = [], 0, []
        for name, place, value in parts:
            piece, whole = values.contents(value, most)
            about = {key: one for key, one in values.plain(values.key_of(value)).items() if key != "device"}
            found.append({"name": name, "place": place, "at": at, "nbytes": len(piece), "whole": whole, **about})
            data.append(piece)
            at += len(piece)
        with self.lock:
            number = self._store(slot, draw, data)
            if number < 0 or not self._write({"sample": number, "slot": slot, "draw": draw, "parts": found}):
                return None
        return number, [(n, v, d) for (n, _, v), d, f in zip(parts, data, found, strict=True) if f["whole"] and len(d) <= CHECKED], parts

    def _store(self, slot: int, draw: float, data: list[bytes]) -> int:
        size = sum(map(len, data))
        mine = sorted((kept for kept in self.kept if kept.slot == slot), key=lambda kept: kept.draw)
        for kept in mine[EACH - 1 :]:
            self._drop(kept)
        while self.kept and sum(kept.size for kept in self.kept) + size > self.settings["bytes"]:
            several = [kept for kept in self.kept if sum(k.slot == kept.slot for k in self.kept) > 1] or self.kept
            self._drop(max(several, key=lambda kept: kept.draw))
        if size > self.settings["bytes"]:
            return -1
        self.made = number = self.made + 1
        with open(os.path.join(self.folder, f"s{number:06}"), "wb") as file:
            file.writelines(data)
        self.kept.append(Kept(number, slot, draw, size))
        return number

    def _drop(self, kept: Kept) -> None:
        self.kept.remove(kept)
        self._write({"gone": kept.number})
        os.unlink(os.path.join(self.folder, f"s{kept.number:06}"))

    def after(self, kept: Any, result: Any) -> None:
        """What the call wrote into its arguments, and what it returned."""
        number, checked, parts = kept
        written = {name for name, value, before in checked if values.contents(value, CHECKED)[0] != before}
        with self.lock:
            self._write({"after": number, "written": sorted(written), "returned": values.returned(result, parts)})


def versions() -> dict[str, str]:
    """Of the libraries that this program has imported, and the card that it uses."""
    found = {n: str(getattr(m, "__version__", "")) for n in ("torch", "triton", "numpy") if (m := sys.modules.get(n)) is not None}
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is not None and cuda.is_initialized():
        found["device"] = str(cuda.get_device_name())
    return found
