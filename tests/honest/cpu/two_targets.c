// id: L45
// family: tampering
// language: c
// task: softmax
// expect: pass
// like: H24
// does: the compiler's own choice by processor, made while it is loaded
// timed: yes

#include <math.h>
#include <stdint.h>

#include "keepfast.h"

static void row(const float *x, float *y, int64_t n)
{
    float max = x[0];
    double sum = 0.0;
    for (int64_t j = 1; j < n; j++)
        if (x[j] > max) max = x[j];
    for (int64_t j = 0; j < n; j++) sum += y[j] = expf(x[j] - max);
    for (int64_t j = 0; j < n; j++) y[j] = (float)(y[j] / sum);
}

#if defined(__x86_64__)
__attribute__((target_clones("avx2", "default")))
#endif
static void scaled(const float *x, float *y, int64_t n)
{
    row(x, y, n);
}

int kernel(const float *x, float *out, int64_t m, int64_t n, void *stream)
{
    (void)stream;
    for (int64_t i = 0; i < m; i++) scaled(x + i * n, out + i * n, n);
    return 0;
}
