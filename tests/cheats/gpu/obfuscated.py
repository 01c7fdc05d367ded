# id: H18
# family: tampering
# task: norm
# language: python
# expect: language, rule
# layer: rules
# tries: the library call, where no pattern finds it
# idle: rms

import base64

import triton
import triton.language as tl

TEXT = (
    b"aW1wb3J0IHRvcmNoCmRlZiBrZXJuZWwoeCwgd2VpZ2h0LCBlcHNpbG9uKToKICAgIHJldHVybiBnZXRhdHRyKHRvcmNoLm5uLmZ1"
    b"bmN0aW9uYWwsICdybXMnICsgJ19ub3JtJykoeCwgeC5zaGFwZVstMTpdLCB3ZWlnaHQsIGVwc2lsb24pCg=="
)


@triton.jit
def rms(x, y):
    tl.store(y, tl.load(x))


exec(base64.b64decode(TEXT))  # defines `kernel`
