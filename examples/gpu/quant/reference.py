"""Quantisation of blocks of 128: scale = largest |x| of the block / 448, q = x / scale as float8_e4m3fn."""

import torch

BLOCK = 128
LARGEST = 448.0  # of float8_e4m3fn
FLOOR = 1e-10  # a block whose largest value is below this is scaled as if it were this


def inputs(case, rng):
    """x [m, n] in bfloat16, n a multiple of 128. `zeros` and `outlier` are blocks that a careless scale gets wrong."""
    here = {"generator": rng, "device": rng.device, "dtype": torch.bfloat16}
    x = torch.randn(case.m, case.n, **here)
    blocks = x.unflatten(1, (-1, BLOCK))
    if case.name == "zeros":
        blocks[::2, ::2] = 0
        blocks[::2, 1::2] *= 1e-12
    elif case.name == "outlier":
        blocks[:, 1:, 77] *= 1000
    return {"x": x}


def reference(x):
    """(q, scale). Given float64, q is what would have to be rounded, in float64."""
    exact = x.dtype == torch.float64
    blocks = x.to(torch.promote_types(x.dtype, torch.float32)).unflatten(1, (-1, BLOCK))
    scale = blocks.abs().amax(dim=2).clamp(min=FLOOR) / LARGEST
    codes = (blocks / scale.unsqueeze(2)).flatten(1)
    return codes if exact else codes.to(torch.float8_e4m3fn), scale


def compare(case, inputs, got, expected):
    """Codes mean something only together with their scales: None, or what is wrong.

    Scales may differ by 1e-5 of themselves; a code is the nearest one to x / its scale, give or take what that moves.
    """
    q, scale = got["q"].to(torch.float64), got["scale"].to(torch.float64)
    off = (scale - expected["scale"]).abs() > 1e-5 * expected["scale"]
    if not bool(torch.isfinite(scale).all()) or bool(off.any()):
        row, block = (int(i) for i in torch.nonzero(off | ~torch.isfinite(scale))[0])
        return f"scale[{row}, {block}]: got {float(scale[row, block]):.7g}, expected {float(expected['scale'][row, block]):.7g}"
    wanted = (inputs["x"].to(torch.float64).unflatten(1, (-1, BLOCK)) / scale.unsqueeze(2)).flatten(1)
    _, exponent = torch.frexp(wanted)  # |wanted| is in [2^(exponent - 1), 2^exponent)
    step = torch.exp2((exponent - 1).clamp(min=-6).to(torch.float64) - 3)  # between neighbours there: three bits of mantissa
    far = ~((q - wanted).abs() <= step / 2 + 1e-5 * wanted.abs())
    if bool(far.any()):
        row, column = (int(i) for i in torch.nonzero(far)[0])
        return f"q[{row}, {column}]: got {float(q[row, column]):.5g}, nearest to {float(wanted[row, column]):.7g} is expected"
    return None
