"""Latent attention over 656-byte tokens: one scale a token, which widens all of its codes, instead of a load for each of them."""

import torch
import triton
import triton.language as tl
from keepfast_tunables import BLOCK, ROWS, STAGES, WARPS


@triton.jit
def attend(
    q, codes, scales, ropes, block_table, lengths, out, lse, scale, pages,
    PAGE: tl.constexpr, HEADS: tl.constexpr, ROWS: tl.constexpr, LATENT: tl.constexpr, ROPE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """ROWS heads of one sequence. `codes`, `scales` and `ropes` are the same cache in three types: a token is 656, 164 and 328 elements."""
    sequence = tl.program_id(0)
    row = (tl.program_id(1) * ROWS + tl.arange(0, ROWS))[:, None]
    column = tl.arange(0, LATENT)[None, :]
    turn = tl.arange(0, ROPE)[None, :]
    token = tl.arange(0, BLOCK)
    head = sequence * HEADS + row
    plain = tl.load(q + head * (LATENT + ROPE) + column)
    turned = tl.load(q + head * (LATENT + ROPE) + LATENT + turn)
    length = tl.load(lengths + sequence)

    top = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    mixed = tl.zeros([ROWS, LATENT], tl.float32)
    for at in range(0, length, BLOCK):
        here = at + token
        inside = here < length
        page = tl.load(block_table + sequence * pages + here // PAGE, mask=inside, other=0)
        slot = (page.to(tl.int64) * PAGE + here % PAGE)[:, None]
        code = tl.load(codes + slot * 656 + column)
        unit = tl.load(scales + slot * 164 + 128)
        values = (code.to(tl.float32) * unit).to(tl.bfloat16)
        keys = tl.load(ropes + slot * 328 + 264 + turn)
        scores = tl.dot(plain, tl.trans(values))
        scores = tl.dot(turned, tl.trans(keys), scores) * scale
        scores = tl.where(inside[None, :], scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        weights = tl.exp(scores - higher[:, None])
        shrink = tl.exp(top - higher)
        mixed = tl.dot(weights.to(tl.bfloat16), values, mixed * shrink[:, None])
        total = total * shrink + tl.sum(weights, 1)
        top = higher
    tl.store(out + head * LATENT + column, (mixed / total[:, None]).to(tl.bfloat16))
    tl.store(lse + head, (top + tl.log(total))[:, None])


def mla_decode(q, cache, block_table, lengths, scale):
    """`q` [b, heads, 576], `cache` [blocks, 64, 656] bytes, `block_table` [b, pages], `lengths` [b] -> [b, heads, 512], [b, heads]."""
    b, heads, width = q.shape
    out = torch.empty((b, heads, 512), dtype=q.dtype, device=q.device)
    lse = torch.empty((b, heads), dtype=torch.float32, device=q.device)
    views = (cache.view(torch.float8_e4m3fn), cache.view(torch.float32), cache.view(torch.bfloat16))
    fixed = {"PAGE": cache.shape[1], "HEADS": heads, "ROWS": ROWS, "LATENT": 512, "ROPE": width - 512}
    tuned = {"BLOCK": BLOCK, "num_warps": WARPS, "num_stages": STAGES}
    attend[(b, heads // ROWS)](q, *views, block_table, lengths, out, lse, scale, block_table.shape[1], **fixed, **tuned)
    return out, lse
