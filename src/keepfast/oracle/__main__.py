"""`python -m keepfast.oracle FD [cuda index or "cpu"]`: serves the judge on the socket FD until it is closed (exit 0), or the GPU's
context is broken (exit 1)."""

from __future__ import annotations

import contextlib
import os
import sys
from socket import socket

from keepfast import wire
from keepfast.oracle.serve import serve


def main(arguments: list[str]) -> None:
    where = arguments[1] if len(arguments) > 1 else "0"
    with contextlib.suppress(wire.Closed):  # the judge had no more questions
        serve(socket(fileno=int(arguments[0])), "cpu" if where == "cpu" else f"cuda:{int(where)}")
        os._exit(1)  # nothing can be tidied up in a broken context: torch would abort


if __name__ == "__main__":
    main(sys.argv[1:])
