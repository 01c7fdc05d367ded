"""FlashInfer's batch decode, planned ahead: `k` and `v` are a cache whose pages are whole contexts. Needs flashinfer.

The name of this file is not `flashinfer`, which would then import itself.
"""

import flashinfer
import torch

WORKSPACE = 64 << 20


def planned(b, heads, kv, s, d, scale, device, made={}):  # noqa: B006
    """The wrapper of the last shape. Planning copies from the host, so it is done once, before anything is captured."""
    key = (b, heads, kv, s, d, scale, device)
    if key not in made:
        made.clear()
        counts = torch.arange(b + 1, dtype=torch.int32, device=device)
        pages, last = counts[:b].clone(), torch.full((b,), s, dtype=torch.int32, device=device)
        buffers = {"paged_kv_indptr_buffer": counts, "paged_kv_indices_buffer": pages, "paged_kv_last_page_len_buffer": last}
        workspace = torch.zeros(WORKSPACE, dtype=torch.uint8, device=device)
        made[key] = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
            workspace, "HND", use_cuda_graph=True, use_tensor_cores=True, **{n: t.clone() for n, t in buffers.items()}
        )
        types = {"q_data_type": torch.bfloat16, "kv_data_type": torch.bfloat16}
        made[key].plan(counts, pages, last, heads, kv, d, s, sm_scale=scale, **types)
    return made[key]


def kernel(q, k, v, scale):
    b, heads, d = q.shape
    kv, s = k.shape[1:3]
    return planned(b, heads, kv, s, d, scale, q.device).run(q, (k, v))
