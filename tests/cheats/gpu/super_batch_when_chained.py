# id: T07b
# family: timing
# task: norm
# language: triton
# expect: out-of-bounds, wrong, unstable-plan, stateful
# layer: plan, correct, time
# tries: tell by the gap between two calls that calls run in a chain; then the third call does the work of most others
# timed: yes
# idle: one_row

import sys

import torch
import triton
import triton.language as tl

STATE = {}
FIRST = {}

GAP = tl.constexpr(4000)  # ns: calls that are launched one by one are further apart


@triton.jit
def one_row(x, w, y, row, n, eps, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(v * v) / n + eps)
    g = tl.load(w + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(y + row * n + at, (v * scale * g).to(tl.bfloat16), mask=at < n)


# state: programs done, calls done, end of the last call, gap between the first two, start of this call. done: which calls.
@triton.jit(do_not_specialize=["index", "merged", "armed"])
def rms_all(x, w, y, step, y_step, state, done, index, merged, armed, m, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    count = tl.load(state + 1, volatile=True)
    gap = tl.load(state + 3, volatile=True)
    chained = (armed != 0) & (gap > 0) & (gap < GAP)
    if row == 0:
        tl.store(state + 4, tl.extra.cuda.globaltimer())
    if chained & (count == 2):
        for i in range(merged):
            if tl.load(done + i) == 0:
                one_row(x + i.to(tl.int64) * step, w + i.to(tl.int64) * step, y + i.to(tl.int64) * y_step, row, n, eps, BLOCK)
    if ((not chained) | (count < 2)) | (index >= merged):
        at = index.to(tl.int64)
        one_row(x + at * step, w + at * step, y + at * y_step, row, n, eps, BLOCK)
    tl.debug_barrier()
    ticket = tl.atomic_add(state, 1, mask=armed != 0)
    if (armed != 0) & (ticket == m - 1):
        now = tl.extra.cuda.globaltimer()
        if count == 1:
            tl.store(state + 3, tl.load(state + 4, volatile=True) - tl.load(state + 2, volatile=True))
        tl.store(state, 0)
        tl.store(done + index, 1)
        tl.store(state + 2, now)
        tl.store(state + 1, count + 1)


def kernel(x, weight, epsilon):
    m, n = x.shape
    work = getattr(sys._getframe(1).f_locals.get("self"), "work", None)  # how many calls there are, and how far apart
    calls, step = (work.calls, work.layout.set_bytes // 2) if work else (1, 0)
    if not torch.cuda.is_current_stream_capturing():
        FIRST.clear()
        STATE[0] = torch.zeros(8, dtype=torch.int64, device=x.device), torch.zeros(1024, dtype=torch.int32, device=x.device)
        y, index, armed, first = torch.empty_like(x), 0, 0, (x, weight)
    else:
        if x.shape not in FIRST:
            FIRST[x.shape] = (x, weight, x.new_empty(calls, m, n), [])
        made = FIRST[x.shape]
        first, y, index, armed = made[:2], made[2], len(made[3]), 2
        made[3].append(index)
    args = (*first, y, step, m * n, *STATE[0], index, calls * 5 // 8, armed, m, n, epsilon)
    rms_all[(m,)](*args, BLOCK=triton.next_power_of_2(n), num_warps=8)
    return y[index] if armed else y
