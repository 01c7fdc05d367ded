"""The agent's side of the counter: `keepfast try` inside a workspace. Says one word to a socket and prints what it hears.

A copy of this file lies beside every workspace and is run there by whatever Python 3 the cage shows, so it uses nothing but the standard
library, and none of the newer syntax. Must not know what a try is.
"""

import os
import socket
import sys

SOCKET = ".keepfast"  # in the workspace
TRY = b"try\n"
YES, NO = b"ok\n", b"no\n"  # the first line of an answer
USAGE = "usage: keepfast try     asks the judge about the editable files as they stand; nothing else can be asked here"


def ask(folder: str) -> bytes:
    """The whole answer, its first line YES or NO; empty when the turn ended meanwhile. OSError when nobody can be asked."""
    place = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.connect("/proc/self/fd/%d/%s" % (place, SOCKET))  # noqa: UP031  a path of any length
            line.sendall(TRY)
            return b"".join(iter(lambda: line.recv(1 << 16), b""))
    finally:
        os.close(place)


def main(arguments: "list[str]") -> int:
    """`arguments`: the workspace, then what was typed."""
    folder, *typed = arguments
    if typed[:1] != ["try"] or any(word.startswith("-") for word in typed):
        print(USAGE, file=sys.stderr)
        return 2
    try:
        answer = ask(folder)
    except OSError as error:
        print("keepfast: the judge cannot be asked now: %s" % error.strerror, file=sys.stderr)  # noqa: UP031
        return 1
    sys.stdout.buffer.write(answer.partition(b"\n")[2] or b"the turn ended before there was an answer\n")
    return 0 if answer.startswith(YES) else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
