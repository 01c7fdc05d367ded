// id: C03p
// family: compliance
// language: c
// task: softmax
// expect: wrong
// layer: correct
// tries: a kernel that is there to be read, and an entry that does something else

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

int kernel(const float *x, float *out, int64_t m, int64_t n, void *stream)
{
    (void)stream;
    (void)row;
    for (int64_t i = 0; i < m * n; i++) out[i] = expf(x[i]) / (float)n;
    return 0;
}
