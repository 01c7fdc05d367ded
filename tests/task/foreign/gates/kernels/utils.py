import contextlib

import torch


def on_device(device):
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()
