"""Rotary embedding and the write into the cache, launched early (programmatic dependent launch), and what comes behind as well, if it waits
by itself. Alone, between other calls, this shows nothing; in a model every kernel before it counts.
"""

import triton
import triton.language as tl
from keepfast_tunables import EACH, WARPS
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def rotate_and_write(
    q, k, v, cos, sin, k_cache, v_cache, positions, capacity, HEADS: tl.constexpr, KV: tl.constexpr, D: tl.constexpr, EACH: tl.constexpr
):
    """Programs below HEADS / EACH turn heads of queries in place; the others turn heads of keys and put them and values into the cache."""
    sequence, first = tl.program_id(0), tl.program_id(1) * EACH
    gdc_launch_dependents()  # whoever comes next waits for the end of this
    gdc_wait()
    place = tl.load(positions + sequence)
    half = tl.arange(0, D // 2)[None, :]
    each = first + tl.arange(0, EACH)[:, None]
    cosine = tl.load(cos + sequence * D + half).to(tl.float32)
    sine = tl.load(sin + sequence * D + half).to(tl.float32)
    if first < HEADS:
        start = (sequence * HEADS + each) * D + half
        low = tl.load(q + start).to(tl.float32)
        high = tl.load(q + start + D // 2).to(tl.float32)
        tl.store(q + start, (low * cosine - high * sine).to(q.dtype.element_ty))
        tl.store(q + start + D // 2, (high * cosine + low * sine).to(q.dtype.element_ty))
    else:
        row = sequence * KV + each - HEADS
        to = (row.to(tl.int64) * capacity + place) * D + half
        start = row * D + half
        low = tl.load(k + start).to(tl.float32)
        high = tl.load(k + start + D // 2).to(tl.float32)
        left, right = tl.load(v + start), tl.load(v + start + D // 2)
        tl.store(k_cache + to, (low * cosine - high * sine).to(k_cache.dtype.element_ty))
        tl.store(k_cache + to + D // 2, (high * cosine + low * sine).to(k_cache.dtype.element_ty))
        tl.store(v_cache + to, left)
        tl.store(v_cache + to + D // 2, right)


def kernel(q, k, v, cos, sin, k_cache, v_cache, positions):
    """`q` [b, heads, d], `k` and `v` [b, kv heads, d], `cos` and `sin` [b, d], the caches [b, kv heads, capacity, d], contiguous."""
    b, heads, d = q.shape
    kv, capacity = k_cache.shape[1:3]
    places = (q, k, v, cos, sin, k_cache, v_cache, positions, capacity)
    rotate_and_write[(b, (heads + kv) // EACH)](*places, HEADS=heads, KV=kv, D=d, EACH=EACH, num_warps=WARPS, launch_pdl=True)
