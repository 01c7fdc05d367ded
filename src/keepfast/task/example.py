"""The texts of the task that `keepfast init NAME` writes: small, commented, and runnable as it is.

Must not know where they go.
"""

from __future__ import annotations

TASK = """\
# What to optimise. Every key: docs/tasks.md; a JSON schema of this file: keepfast schema
schema = 1
title = "length of each row, float32"

# The calling contract, as a torch operator schema. `Tensor(a!) x` marks a tensor that the kernel writes.
signature = "row_norms(Tensor x) -> Tensor"

entry = "kernel/kernel.c:kernel"    # FILE:FUNCTION, below `root` (this folder, unless set)
editable = ["kernel/**"]            # what may be changed; everything else is yours
axes = ["m", "n"]                   # every case binds them; the kernel gets them as int64_t, after the outputs
threads = 1                         # cores that a kernel may use

[[case]]
name = "wide"
m = 256
n = 4096
weight = 2.0                        # share in the overall time, normalised over the timed cases

[[case]]
name = "narrow"
m = 4096
n = 100

[[case]]
name = "odd"
m = 7
n = 33
use = "correct"                     # checked, not timed

[goal]
speedup = 2.0                       # times the fastest baseline that passes; write over = "start" for the first kernel

[budget]
experiments = 200

[limit]
bytes = "4*m*n + 4*m"               # the least that must be moved: faster than memory allows is suspect

[build]
flags = ["-O3"]                     # yours, the same for every kernel that is compared
libs = ["-lm"]

[tolerance]
reduction = "n"                     # how many terms are summed for one element
"""

REFERENCE = '''\
"""The inputs and the right answer. NumPy; the candidate never sees this file run."""

import numpy as np


def inputs(case, rng):
    """All arguments of the signature, in order, fresh from `rng`. `case.m`, `case.n` and `case.name` are there."""
    return {"x": rng.standard_normal((case.m, case.n), dtype=np.float32)}


def reference(x):
    """The right answer, in the precision it is given: it is called with float32 and with float64."""
    return np.sqrt(np.sum(x * x, axis=1))
'''

KERNEL = """\
#include "keepfast.h"          /* the prototype, written from the signature */
#include "keepfast_tunables.h" /* LANES, from tunables.toml */
#include <math.h>

/* The sum is kept in LANES parts, so that additions need not wait for each other. */
int kernel(const float *x, float *out, int64_t m, int64_t n, void *stream) {
    (void)stream;
    for (int64_t i = 0; i < m; i++) {
        float part[LANES] = {0};
        int64_t j = 0;
        for (; j + LANES <= n; j += LANES)
            for (int k = 0; k < LANES; k++)
                part[k] += x[i * n + j + k] * x[i * n + j + k];
        float sum = 0;
        for (; j < n; j++)
            sum += x[i * n + j] * x[i * n + j];
        for (int k = 0; k < LANES; k++)
            sum += part[k];
        out[i] = sqrtf(sum);
    }
    return 0;
}
"""

TUNABLES = """\
# Numbers that a search may change. `choices = [...]`, `range = [lo, hi, step]` or `log2 = [lo, hi]`, and the present value.
constraints = []                    # for example "LANES <= 32"

[LANES]
log2 = [1, 64]
value = 1
"""

BASELINE = '''\
"""An opponent: the goal is over the fastest baseline that gives right answers."""

import numpy as np


def kernel(x, out):
    """Arguments in order, then outputs, which are written in place."""
    np.sqrt(np.einsum("ij,ij->i", x, x), out=out)
'''

FILES: tuple[tuple[str, str], ...] = (
    ("task.toml", TASK),
    ("reference.py", REFERENCE),
    ("kernel/kernel.c", KERNEL),
    ("kernel/tunables.toml", TUNABLES),
    ("baselines/numpy.py", BASELINE),
)
