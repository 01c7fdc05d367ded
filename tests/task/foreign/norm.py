import torch


def add_rms_norm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> tuple[torch.Tensor, torch.Tensor]:
    residual.add_(x)
    x.copy_(torch.nn.functional.rms_norm(residual, weight.shape, weight, eps))
    return x, residual


def plain(x, residual, weight, eps):
    total = x + residual
    wide = total.to(torch.promote_types(total.dtype, torch.float32))
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight).to(x.dtype), total
