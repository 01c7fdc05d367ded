"""Liger-Kernel: Triton, one program a row in registers. It refuses rows of more than 65536 elements: those are torch's here."""

import torch


def kernel(x):
    try:
        from liger_kernel.ops.softmax import _softmax_forward
    except ImportError:
        raise ImportError("Liger-Kernel is not installed: pip install liger-kernel") from None
    return torch.softmax(x, dim=1) if x.shape[1] > 65536 else _softmax_forward(x)[0]
