"""All tests of this folder on a card in one command, in under eight minutes.

    python -m tests.gpu [--seconds 480] [--out FOLDER] [--outcomes FILE] [--only corpus_1,judge] [--fresh]

What a shard finds is in FOLDER when it ends; started again with the same FOLDER, those that ended are not run again. Exit code 1 when a
test failed, 5 when time was over before all of them had ended.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.gpu.shards import SHARDS, Runner, line


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=480.0)
    parser.add_argument("--out", type=Path, default=None, help="by default a temporary folder")
    parser.add_argument(
        "--outcomes", default="", help="file for the answers to the corpus, which `keepfast redteam --gpu --out` goes on from"
    )
    parser.add_argument("--only", default="", help=f"some of {', '.join(s.name for s in SHARDS)}")
    parser.add_argument("--fresh", action="store_true", help="run again what ended before")
    given = parser.parse_args(words)
    wanted = [name for name in given.only.split(",") if name]
    chosen = [s for s in SHARDS if not wanted or s.name in wanted]
    out = (given.out or Path(tempfile.mkdtemp(prefix="keepfast-tests-"))).resolve()
    for shard in chosen if given.fresh else ():
        (out / f"{shard.name}.json").unlink(missing_ok=True)
    more = ("--outcomes", str(Path(given.outcomes).resolve())) if given.outcomes else ()
    began = time.monotonic()
    done = Runner(out, began + given.seconds, more, lambda text: print(text, flush=True)).run(chosen)
    failed = [test for found in done for test in found.failed]
    ended = sum(found.whole for found in done)
    passed = sum(found.passed for found in done)
    print(
        f"\n{passed} passed, {len(failed)} failed, {ended} of {len(chosen)} shards ended, {time.monotonic() - began:.0f} s; {out}",
        flush=True,
    )
    for found in done:
        if found.failed or not found.whole:
            print(line(found), flush=True)
    return 1 if failed else 0 if ended == len(chosen) else 5


if __name__ == "__main__":
    sys.exit(main())
