from __future__ import annotations

from keepfast.gpu.ptxas import Resources, resources

LOG = """ptxas info    : 11 bytes gmem, 8 bytes cmem[4]
ptxas info    : Compiling entry function '_Z3addPKfPfl' for 'sm_90a'
ptxas info    : Function properties for _Z3addPKfPfl
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 0 barriers
ptxas info    : Compile time = 2.911 ms
ptxas info    : Compiling entry function 'big' for 'sm_90a'
ptxas info    : Function properties for big
    104 bytes stack frame, 96 bytes spill stores, 120 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 104 bytes cumulative stack size, 4096 bytes smem
"""


def test_what_each_kernel_takes() -> None:
    assert resources(LOG) == (Resources("_Z3addPKfPfl", 10), Resources("big", 255, 96, 104, 4096))


def test_the_last_word_counts() -> None:
    again = LOG.replace("Used 10", "Used 12")
    assert resources(LOG + again)[0].registers == 12
    assert len(resources(LOG + again)) == 2


def test_nothing_said() -> None:
    assert resources("") == resources("kernel.cu(3): error: no\n") == ()
