"""FlashMLA over this very cache format, which only its sparse kernel takes: so every token of a context is named. Needs flash_mla.

The name of this file is not `flash_mla`, which would then import itself.
"""

import torch


def library():
    try:
        import flash_mla
    except ImportError as missing:
        raise RuntimeError("flash_mla is not installed: build it from its repository, for a GPU of sm_90 or sm_100") from missing
    return flash_mla


def places(block_table, page):
    """[b, 1, pages * page] int32: page number * page + offset of every token; those beyond the context are left out by its length."""
    offset = torch.arange(page, dtype=torch.int32, device=block_table.device)
    return (block_table[..., None] * page + offset).flatten(1)[:, None]


def kernel(q, cache, block_table, lengths, scale):
    flash_mla = library()
    plan, _ = flash_mla.get_mla_metadata()  # filled in by the first call, on the device: so each call makes its own
    given = {"softmax_scale": scale, "is_fp8_kvcache": True, "topk_length": lengths}
    tokens = cache.view(torch.float8_e4m3fn)[:, :, None]
    indices = places(block_table, cache.shape[1])
    out, lse = flash_mla.flash_mla_with_kvcache(q[:, None], tokens, None, None, 512, plan, indices=indices, **given)
    return out[:, 0], lse[:, :, 0].contiguous()
