"""Rotary embedding and the write into the cache: one program for each head of queries, and for each head of keys and values."""

import triton
import triton.language as tl
from keepfast_tunables import WARPS


@triton.jit
def rotate_and_write(
    q, k, v, cos, sin, k_cache, v_cache, positions, capacity, HEADS: tl.constexpr, KV: tl.constexpr, D: tl.constexpr, WARPS: tl.constexpr
):
    """Programs below HEADS turn a head of queries in place; the others turn a head of keys and put it and its values into the cache."""
    sequence, head = tl.program_id(0), tl.program_id(1)
    half = tl.arange(0, D // 2)
    angle = sequence * D + half
    cosine = tl.load(cos + angle).to(tl.float32)
    sine = tl.load(sin + angle).to(tl.float32)
    if head < HEADS:
        start = q + (sequence * HEADS + head) * D
        low = tl.load(start + half).to(tl.float32)
        high = tl.load(start + D // 2 + half).to(tl.float32)
        tl.store(start + half, (low * cosine - high * sine).to(q.dtype.element_ty))
        tl.store(start + D // 2 + half, (high * cosine + low * sine).to(q.dtype.element_ty))
    else:
        row = sequence * KV + head - HEADS
        to = (row.to(tl.int64) * capacity + tl.load(positions + sequence)) * D
        low = tl.load(k + row * D + half).to(tl.float32)
        high = tl.load(k + row * D + D // 2 + half).to(tl.float32)
        tl.store(k_cache + to + half, (low * cosine - high * sine).to(k_cache.dtype.element_ty))
        tl.store(k_cache + to + D // 2 + half, (high * cosine + low * sine).to(k_cache.dtype.element_ty))
        whole = tl.arange(0, D)
        tl.store(v_cache + to + whole, tl.load(v + row * D + whole))


def kernel(q, k, v, cos, sin, k_cache, v_cache, positions):
    """`q` [b, heads, d], `k` and `v` [b, kv heads, d], `cos` and `sin` [b, d], the caches [b, kv heads, capacity, d], contiguous."""
    b, heads, d = q.shape
    kv, capacity = k_cache.shape[1:3]
    places = (q, k, v, cos, sin, k_cache, v_cache, positions, capacity)
    rotate_and_write[(b, heads + kv)](*places, HEADS=heads, KV=kv, D=d, WARPS=WARPS, num_warps=WARPS)
