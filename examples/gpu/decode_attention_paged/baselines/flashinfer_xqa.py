"""FlashInfer's decode kernel that takes a block table and lengths on the device (XQA on Hopper). Needs flashinfer.

The name of this file is not `flashinfer`, which would then import itself.
"""

import torch
from flashinfer.decode import trtllm_batch_decode_with_kv_cache

WORKSPACE = 128 << 20


def workspace(device, made={}):  # noqa: B006
    """Zero before its first use; the kernel leaves its counters at zero."""
    if device not in made:
        made[device] = torch.zeros(WORKSPACE, dtype=torch.uint8, device=device)
    return made[device]


def kernel(q, k_cache, v_cache, block_table, seq_lens, scale):
    longest = block_table.shape[1] * k_cache.shape[1]
    given = (q, (k_cache, v_cache), workspace(q.device), block_table, seq_lens, longest)
    return trtllm_batch_decode_with_kv_cache(*given, bmm1_scale=scale, bmm2_scale=1.0, kv_layout="NHD")
