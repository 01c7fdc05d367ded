"""A benchmark that takes no time: it prints what a serving benchmark would. `python bench.py SECONDS CONTEXT BATCH [words]`.

Environment: FACTOR multiplies its seconds; FALL=1 ends it with an error; HANG=1 leaves a child behind and never ends.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time


def main() -> None:
    seconds, context, batch = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    if os.environ.get("FALL"):
        print("CUDA error: an illegal memory access was encountered", file=sys.stderr)
        raise SystemExit(3)
    if os.environ.get("HANG"):
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        print(f"child {child.pid}", flush=True)
        time.sleep(600)
    if flood := os.environ.get("FLOOD"):
        print("x" * int(flood))
    print("loading")
    if mode := os.environ.get("GRAPHS", "True"):
        print(
            f"Decode batch, #running-req: 1, #token: 9, token usage: 0.0, cuda graph: {mode}, gen throughput (token/s): 1.0, #queue-req: 0"
        )
    if engaged := os.environ.get("KERNEL"):
        print(f"keepfast kernel engaged from {engaged}", file=sys.stderr)
    jitter = 1 + 0.0002 * (time.time_ns() // 1000 % 7)
    found = seconds * batch * float(os.environ.get("FACTOR", "1")) * jitter
    print(json.dumps({"phase": "decode", "context": context, "batch": batch, "seconds": found, "steps": 8}))


main()
