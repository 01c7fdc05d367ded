// id: L34
// family: replay
// language: c
// task: softmax
// expect: pass
// like: R09
// does: temporaries on the stack, as large as a row
// timed: yes

#include <math.h>
#include <stdint.h>
#include <alloca.h>

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

int kernel(const float *x, float *out, int64_t m, int64_t n, void *stream)
{
    (void)stream;
    float *work = alloca((size_t)n * 4);
    for (int64_t i = 0; i < m; i++) {
        row(x + i * n, work, n);
        for (int64_t j = 0; j < n; j++) out[i * n + j] = work[j];
    }
    return 0;
}
