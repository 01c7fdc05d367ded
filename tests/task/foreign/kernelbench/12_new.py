import torch
import torch.nn as nn


class ModelNew(nn.Module):
    """Other names for the same weights, made in the same order."""

    def __init__(self, in_features, out_features, bias_shape, divisor=2.0):
        super().__init__()
        self.projection = nn.Linear(in_features, out_features)
        self.norm = nn.LayerNorm(out_features)
        self.offset = nn.Parameter(torch.randn(bias_shape))
        self.divisor = divisor

    def forward(self, x):
        x = x @ self.projection.weight.T + self.projection.bias
        var, mean = torch.var_mean(x, 0, correction=0)
        x = (x - mean) * torch.rsqrt(var + 1e-5) * self.norm.weight + self.norm.bias + self.offset
        return x * torch.sigmoid(x) / self.divisor
