"""Contexts gathered and widened to bfloat16, then two products and a softmax of torch, one after the other."""

import torch


def product(a, b):
    """Sums in float32 that stay so: rounded to bfloat16, the scores would spoil the lse. On a CPU torch does not offer this."""
    return torch.bmm(a, b, out_dtype=torch.float32) if a.is_cuda else torch.bmm(a.float(), b.float())


def kernel(q, cache, block_table, lengths, scale):
    tokens = cache[block_table].flatten(1, 2)
    codes = tokens[..., :512].view(torch.float8_e4m3fn).to(torch.bfloat16)
    scales = tokens[..., 512:528].view(torch.float32).to(torch.bfloat16)  # powers of two: nothing is lost
    latent = (codes.unflatten(-1, (4, 128)) * scales[..., None]).flatten(-2)
    keys = torch.cat([latent, tokens[..., 528:].view(torch.bfloat16)], dim=-1)
    beyond = torch.arange(keys.shape[1], device=q.device) >= lengths[:, None]
    scores = (product(q, keys.mT) * scale).masked_fill(beyond[:, None], float("-inf"))
    weights = torch.softmax(scores, dim=-1).to(torch.bfloat16)
    return torch.bmm(weights, latent), torch.logsumexp(scores, dim=-1)
