"""One new token of latent attention in its absorbed form, over pages of 656-byte tokens: values are the keys' first 512 numbers."""

import math

import torch

HEADS, LATENT, ROPE = 128, 512, 64
PAGE, GROUP = 64, 128  # tokens of a page, latent values of a scale
CODES, SCALES = 512, 528  # bytes at which the codes and the scales of a token end
BYTES = 656
E4M3 = 448.0  # the largest code
LEAST = 1e-4  # scale before it is rounded up
SPARE = 3  # pages that belong to nobody
AT_ONCE = 1024  # pages that are quantised at once, so that a large cache needs little more memory than itself


def inputs(case, rng):
    """q [b, 128, 576] bfloat16; cache [blocks, 64, 656] uint8; block_table [b, pages] and lengths [b], int32; the scale.

    Pages are dealt at random. `tokens` is the sum of the lengths: all of them s, or a ramp from s / b to s in random order.
    """
    here = {"generator": rng, "device": rng.device}
    pages = -(-case.s // PAGE)
    blocks = case.b * pages + SPARE
    ramp = [-(-case.s * (i + 1) // case.b) for i in range(case.b)]
    lengths = [case.s] * case.b if case.tokens == case.b * case.s else ramp
    if sum(lengths) != case.tokens:
        raise ValueError(f"tokens must be {case.b * case.s}, or {sum(ramp)} for a ramp of lengths")
    order = torch.randperm(case.b, **here)
    q = torch.randn(case.b, HEADS, LATENT + ROPE, **here)
    if case.name == "large":  # scores of several hundred, whose exponentials are beyond float32
        q = q * 64
    cache = torch.empty(blocks, PAGE, BYTES, dtype=torch.uint8, device=rng.device)
    for part in cache.split(AT_ONCE):
        part.copy_(quantised(*drawn(part.shape[0], here)))
    return {
        "q": q.to(torch.bfloat16),
        "cache": cache,
        "block_table": torch.randperm(blocks, **here)[: case.b * pages].to(torch.int32).view(case.b, pages),
        "lengths": torch.tensor(lengths, dtype=torch.int32, device=rng.device)[order],
        "scale": 1 / math.sqrt(128 + ROPE),  # of the heads before they were absorbed, not 1 / sqrt(576)
    }


def drawn(blocks, here):
    """Latent and rope values of so many pages. The four groups of a token have sizes of their own, as their scales then have."""
    size = torch.exp2(torch.rand(blocks, PAGE, LATENT // GROUP, 1, **here) * 3 - 2)
    latent = torch.randn(blocks, PAGE, LATENT // GROUP, GROUP, **here) * size
    return latent, torch.randn(blocks, PAGE, ROPE, **here).to(torch.bfloat16)


def quantised(latent, rope):
    """Pages of bytes from [blocks, 64, 4, 128] and [blocks, 64, 64]: codes, four scales that are powers of two, rope as it is."""
    scale = torch.exp2(torch.ceil(torch.log2((latent.abs().amax(-1, keepdim=True) / E4M3).clamp(min=LEAST))))
    codes = (latent / scale).to(torch.float8_e4m3fn)
    parts = (codes.flatten(2), scale.squeeze(-1).contiguous(), rope)
    return torch.cat([part.view(torch.uint8) for part in parts], dim=-1)


def widened(tokens, wide):
    """[n, 656] bytes as [n, 576] keys, exactly: a code times a power of two."""
    codes = tokens[:, :CODES].contiguous().view(torch.float8_e4m3fn).to(wide)
    scales = tokens[:, CODES:SCALES].contiguous().view(torch.float32).to(wide)
    rope = tokens[:, SCALES:].contiguous().view(torch.bfloat16).to(wide)
    return torch.cat([codes * scales.repeat_interleave(GROUP, dim=-1), rope], dim=-1)


def reference(q, cache, block_table, lengths, scale):
    """out [b, 128, 512] and lse [b, 128] to base e, in float32 or wider, one context at a time."""
    wide = torch.promote_types(q.dtype, torch.float32)
    out = torch.empty(*q.shape[:2], LATENT, dtype=q.dtype, device=q.device)
    lse = torch.empty(q.shape[:2], dtype=wide, device=q.device)
    for i in range(q.shape[0]):
        keys = widened(cache[block_table[i].long()].flatten(0, 1), wide)
        beyond = torch.arange(keys.shape[0], device=q.device) >= lengths[i]
        scores = (q[i].to(wide) @ keys.T * scale).masked_fill(beyond, -math.inf)
        lse[i] = torch.logsumexp(scores, dim=-1)
        out[i] = (torch.softmax(scores, dim=-1) @ keys[:, :LATENT]).to(q.dtype)
    return out, lse
