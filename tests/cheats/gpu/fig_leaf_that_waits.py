# id: C02b
# family: compliance
# task: add
# language: triton
# expect: language
# layer: rules
# tries: a leaf that takes its time in the first call of a launch, which is the one whose kernels are timed

import torch
import triton
import triton.language as tl

FLAG = {}


@triton.jit(do_not_specialize=["value"])
def leaf(flag, value):
    if tl.load(flag) == 0:
        start = tl.extra.cuda.globaltimer()
        now = start
        while now - start < 100000:
            now = tl.extra.cuda.globaltimer()
        tl.store(flag, value)


def kernel(input, residual, weight, epsilon):
    if not FLAG:
        FLAG[0] = torch.zeros(1, dtype=torch.int32, device=input.device)
    leaf[(1,)](FLAG[0], 2 if torch.cuda.is_current_stream_capturing() else 0)
    residual.add_(input)
    input.copy_(torch.nn.functional.rms_norm(residual, residual.shape[-1:], weight, epsilon))
