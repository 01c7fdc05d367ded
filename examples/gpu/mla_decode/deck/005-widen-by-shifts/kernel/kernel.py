"""Latent attention over 656-byte tokens: codes become float32 by shifts, and each scale is loaded once for its 128 codes."""

import torch
import triton
import triton.language as tl
from keepfast_tunables import BLOCK, PROGRAMS, ROWS, STAGES, WARPS

SMS = 132  # multiprocessors
LOG2E = 1.4426950408889634
UP = tl.constexpr(2.0**120)  # between the exponents of e4m3 (bias 7) and of float32 (127)


@triton.jit(do_not_specialize=["pages", "chunk", "splits"])
def attend(
    q, codes, scales, ropes, block_table, lengths, part, height, scale, pages, chunk, splits,
    PAGE: tl.constexpr, HEADS: tl.constexpr, ROWS: tl.constexpr, LATENT: tl.constexpr, ROPE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Tokens split * chunk and on of one sequence, for ROWS of its heads. BLOCK divides PAGE, so a step stays within a page.

    `part` [b * HEADS, splits, LATENT]: the mean of their values; `height` [b * HEADS, splits]: log2 of its weight.
    `codes`, `scales` and `ropes` are the same cache in three types, codes as bytes: a token is 656, 164 and 328 elements.
    """
    sequence, split = tl.program_id(0), tl.program_id(2)
    row = (tl.program_id(1) * ROWS + tl.arange(0, ROWS))[:, None]
    column = tl.arange(0, LATENT)[None, :]
    turn = tl.arange(0, ROPE)[None, :]
    token = tl.arange(0, BLOCK)
    group = tl.arange(0, 4)[None, :]
    head = sequence * HEADS + row
    length = tl.load(lengths + sequence)
    begin = split * chunk
    end = tl.minimum(begin + chunk, length)
    plain = tl.load(q + head * (LATENT + ROPE) + column)
    turned = tl.load(q + head * (LATENT + ROPE) + LATENT + turn)
    top = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    mixed = tl.zeros([ROWS, LATENT], tl.float32)
    for at in range(begin, end, BLOCK):
        page = tl.load(block_table + sequence * pages + at // PAGE).to(tl.int64)
        slot = (page * PAGE + at % PAGE + token)[:, None]
        code = tl.load(codes + slot * 656 + column).to(tl.uint32)
        unit = tl.load(scales + slot * 164 + 128 + group) * UP
        wide = (((code & 128) << 24) | ((code & 127) << 20)).to(tl.float32, bitcast=True)
        values = (tl.reshape(wide, [BLOCK, 4, LATENT // 4]) * unit[:, :, None]).to(tl.bfloat16)
        values = tl.reshape(values, [BLOCK, LATENT])
        keys = tl.load(ropes + slot * 328 + 264 + turn)
        scores = tl.dot(plain, tl.trans(values))
        scores = tl.dot(turned, tl.trans(keys), scores) * scale
        scores = tl.where((at + token < end)[None, :], scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        weights = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(top - higher)
        mixed = tl.dot(weights.to(tl.bfloat16), values, mixed * shrink[:, None])
        total = total * shrink + tl.sum(weights, 1)
        top = higher
    place = head.to(tl.int64) * splits + split
    tl.store(part + place * LATENT + column, mixed / total[:, None], mask=begin < length)
    tl.store(height + place, (top + tl.log2(total))[:, None], mask=begin < length)


@triton.jit(do_not_specialize=["chunk", "splits"])
def combine(part, height, lengths, out, lse, chunk, splits, HEADS: tl.constexpr, WIDE: tl.constexpr, LATENT: tl.constexpr):
    """The mean of one head's parts by their weights. WIDE: at least `splits`; a short sequence has fewer parts."""
    head = tl.program_id(0)
    split = tl.arange(0, WIDE)
    column = tl.arange(0, LATENT)
    live = tl.cdiv(tl.load(lengths + head // HEADS), chunk)
    first = head.to(tl.int64) * splits
    heights = tl.load(height + first + split, mask=split < live, other=float("-inf"))
    top = tl.max(heights, 0)
    total = tl.sum(tl.exp2(heights - top), 0)
    mean = tl.zeros([LATENT], tl.float32)
    for i in range(live):
        mean += tl.load(part + (first + i) * LATENT + column) * tl.exp2(tl.load(height + first + i) - top)
    tl.store(out + head * LATENT + column, (mean / total).to(tl.bfloat16))
    tl.store(lse + head, (top + tl.log2(total)) * 0.6931471805599453)  # to base e


def mla_decode(q, cache, block_table, lengths, scale):
    """`q` [b, heads, 576], `cache` [blocks, 64, 656] bytes, `block_table` [b, pages], `lengths` [b] -> [b, heads, 512], [b, heads]."""
    b, heads, width = q.shape
    pages, page = block_table.shape[1], cache.shape[1]
    parts = max(1, min(SMS * PROGRAMS // (b * heads // ROWS), pages, 128))  # for contexts as long as the table allows
    chunk = triton.cdiv(pages, parts) * page
    splits = triton.cdiv(pages * page, chunk)
    out = torch.empty((b, heads, 512), dtype=q.dtype, device=q.device)
    lse = torch.empty((b, heads), dtype=torch.float32, device=q.device)
    part = torch.empty((b * heads, splits, 512), dtype=torch.float32, device=q.device)
    height = torch.empty((b * heads, splits), dtype=torch.float32, device=q.device)
    views = (cache, cache.view(torch.float32), cache.view(torch.bfloat16))
    fixed = {"PAGE": page, "HEADS": heads, "ROWS": ROWS, "LATENT": 512, "ROPE": width - 512}
    tuned = {"BLOCK": BLOCK, "num_warps": WARPS, "num_stages": STAGES}
    given = (q, *views, block_table, lengths, part, height, scale * LOG2E, pages, chunk, splits)
    attend[(b, heads // ROWS, splits)](*given, **fixed, **tuned)
    combine[(b * heads,)](part, height, lengths, out, lse, chunk, splits, HEADS=heads, WIDE=128, LATENT=512, num_warps=4)
    return out, lse
