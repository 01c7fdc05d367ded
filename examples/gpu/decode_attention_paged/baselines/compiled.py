"""Pages gathered and attention written out in float32, left to torch.compile."""

import torch


@torch.compile(dynamic=False, fullgraph=True)
def attention(q, k_cache, v_cache, block_table, seq_lens, scale: float):
    b, heads, d = q.shape
    kv = k_cache.shape[2]
    k, v = (cache[block_table].flatten(1, 2).transpose(1, 2).float() for cache in (k_cache, v_cache))
    groups = q.view(b, kv, heads // kv, 1, d).float()
    inside = torch.arange(k.shape[2], device=q.device) < seq_lens[:, None]
    scores = (groups * k[:, :, None]).sum(-1) * scale
    weights = torch.softmax(scores.masked_fill(~inside[:, None, None], float("-inf")), dim=-1)
    return (weights[..., None] * v[:, :, None]).sum(3).to(q.dtype).view(b, heads, d)


def kernel(q, k_cache, v_cache, block_table, seq_lens, scale):
    return attention(q, k_cache, v_cache, block_table, seq_lens, scale)
