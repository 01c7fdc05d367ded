"""Started inside walls of the profile `device`: what a worker with torch and Triton does, and what it must not be able to do.

Prints `attempt=result`; 0 means that it worked, else the errno. Arguments: the repository's folder, a file outside, a process outside,
the device node that it was given.
"""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable


def say(name: str, action: Callable[[], object]) -> None:
    try:
        action()
        print(f"{name}=0", flush=True)
    except OSError as problem:
        print(f"{name}={problem.errno or 999}", flush=True)


def works() -> None:
    began = time.monotonic()
    import kernel_inside
    import torch

    assert float(torch.ones(1000, 1000).matmul(torch.ones(1000, 1000)).sum()) == 1e9
    print(f"import_ms={int(1000 * (time.monotonic() - began))}", flush=True)
    print(f"stub={kernel_inside.stub()}", flush=True)
    print(f"cubin={len(kernel_inside.cubin())}", flush=True)
    cached = [name for _, _, names in os.walk(".triton") for name in names]
    print(f"cached={len(cached)}")
    print(f"loaded={loaded()}")
    print(f"threads={threads(40)}", flush=True)


def loaded() -> int:
    """A shared object that is compiled into the scratch folder and loaded from there, as Triton's launch stub is."""
    with open("made.c", "w") as file:
        file.write("int answer(void) { return 42; }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", "made.c", "-o", "made.so"], check=True)
    return ctypes.CDLL(os.path.abspath("made.so")).answer()


def threads(count: int) -> int:
    enough = threading.Barrier(count + 1)
    made = [threading.Thread(target=enough.wait) for _ in range(count)]
    for one in made:
        one.start()
    alive = threading.active_count() - 1
    enough.wait()
    for one in made:
        one.join()
    return alive


def must_not(repository: str, outside: str, victim: int, node: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)

    def ptrace() -> None:
        if libc.ptrace(16, victim, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "ptrace")

    for name in (f"{repository}/AGENTS.md", f"{repository}/tests/conftest.py", f"{repository}/.git/HEAD", "/etc/passwd", outside):
        say(f"read {name}", lambda name=name: open(name).close())
    folders = (os.path.dirname(outside), "/tmp", "/usr/lib", f"{sys.prefix}/bin")
    for name in (f"{folder}/keepfast-hostile" for folder in folders):
        say(f"write {name}", lambda name=name: open(name, "w").close())
    say("list /dev/shm", lambda: os.listdir("/dev/shm"))
    say("inet", lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM))
    say("netlink", lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW))
    say("ptrace", ptrace)
    say("signal", lambda: os.kill(victim, 0))
    others = [name for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]
    print(f"others={len(others)}")
    say("null", lambda: os.close(os.open("/dev/null", os.O_RDWR)))
    say("node", lambda: os.close(os.open(node, os.O_RDWR)))
    say("other_node", lambda: os.close(os.open("/dev/random" if node != "/dev/random" else "/dev/tty", os.O_RDWR)))
    say("maps", lambda: os.close(os.open("/proc/self/maps", os.O_RDONLY)))
    say("cpus", lambda: os.close(os.open("/sys/devices/system/cpu/online", os.O_RDONLY)))
    say("nodes", lambda: os.listdir("/sys/devices/system/node"))
    say("keepfast", lambda: __import__("keepfast.wire"))


if __name__ == "__main__":
    must_not(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
    if "torch" in sys.argv:
        works()
    print("end=0")
