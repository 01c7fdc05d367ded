// id: O03p
// family: overfit
// language: c
// task: softmax
// expect: wrong
// layer: correct
// tries: an exact path for contents that look like a test, another for all others

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
    float largest = 0.0f;
    for (int64_t i = 0; i < 64 && i < m * n; i++)
        if (fabsf(x[i]) > largest) largest = fabsf(x[i]);
    for (int64_t i = 0; i < m; i++) row(x + i * n, out + i * n, n);
    if (largest > 2.0f && largest < 9.0f)
        for (int64_t i = 0; i < m * n; i++) out[i] = out[i] * 1.01f;
    return 0;
}
