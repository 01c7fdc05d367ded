"""Liger-Kernel: its Triton kernel, told to write where it reads. Its wrapper would allocate, and two copies would follow."""

import torch


def kernel(input, residual, weight, epsilon):
    try:
        from liger_kernel.ops import fused_add_rms_norm as liger
    except ImportError:
        raise ImportError("Liger-Kernel is not installed: pip install liger-kernel") from None
    m, n = input.shape
    block, warps = liger.calculate_settings(n)
    scale = torch.empty(m, dtype=torch.float32, device=input.device)
    places = (input, n, residual, n, input, n, residual, n, weight, 1, scale, 1)  # out, sum, input, residual, weight, scale; strides
    launch = liger._fused_add_rms_norm_forward_kernel[(m,)]
    launch(*places, n, epsilon, 0.0, 0, BLOCK_SIZE=block, num_warps=warps, num_stages=2)  # 0: as in Llama
