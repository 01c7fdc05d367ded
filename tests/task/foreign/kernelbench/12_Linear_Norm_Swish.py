import torch
import torch.nn as nn


class Model(nn.Module):
    """Linear, batch norm, a bias, swish."""

    def __init__(self, in_features, out_features, bias_shape, divisor=2.0):
        super(Model, self).__init__()  # noqa: UP008
        self.linear = nn.Linear(in_features, out_features)
        self.bn = nn.BatchNorm1d(out_features)
        self.bias = nn.Parameter(torch.randn(bias_shape))
        self.divisor = divisor

    def forward(self, x):
        x = self.bn(self.linear(x)) + self.bias
        return torch.sigmoid(x) * x / self.divisor


batch_size = 64
in_features = 96
out_features = 80
bias_shape = (1,)


def get_inputs():
    return [torch.rand(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features, bias_shape]
