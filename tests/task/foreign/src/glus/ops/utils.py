import functools

import triton


def contiguous(function):
    @functools.wraps(function)
    def wrapped(ctx, *args, **kwargs):
        return function(ctx, *(a.contiguous() if hasattr(a, "contiguous") else a for a in args), **kwargs)

    return wrapped


def settings(columns):
    block = triton.next_power_of_2(columns)
    return block, 4 if block < 2048 else 8
