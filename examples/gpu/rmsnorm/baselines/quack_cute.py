"""QuACK: its CuTe DSL kernel, told to write where it reads. Its wrapper would allocate, and two copies would follow."""


def kernel(input, residual, weight, epsilon):
    try:
        from quack.rmsnorm import _rmsnorm_fwd
    except ImportError:
        raise ImportError("QuACK is not installed: pip install quack-kernels") from None
    _rmsnorm_fwd(input, weight, out=input, residual=residual, residual_out=residual, eps=epsilon)
