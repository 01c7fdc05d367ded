"""The runner: the process that holds a candidate's code. Untrusted once the candidate is loaded.

`runner.c` serves compiled candidates, `python.py` baselines written in Python. Both know only the messages below and the
memory they were given; neither knows what is measured, compared or decided.

A message to the runner is 16 bytes, little-endian, `u32 op, u32 a, u64 b`, with a descriptor where `fd` is said:

    1 MAP     a = buffer index, b = size in bytes, fd; op | 0x100 when the buffer may be written
    2 TABLE   b = size in bytes, fd of the call table (format in keepfast/wire.py)
    3 LOAD    b = nonce << 32; loads argv[1]
    4 CALL    a = first row, b = nonce << 32 | number of rows
    5 EXIT
    6 LAYOUT  b = size in bytes, fd: what the words are, for the Python runner; before TABLE

Each is answered by one frame, `{"op": ..., "ok": ..., "rc": ..., "nonce": ...}` and `"error"` where something failed. When
it is ready the runner says so once, unasked, as op "ready". Before it dies by a fault it says where, as op "crash".
"""
