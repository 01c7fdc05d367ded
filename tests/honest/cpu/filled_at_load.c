// id: L33
// family: timing
// language: c
// task: softmax
// expect: pass
// like: T15p
// does: a table of constants, filled by a constructor
// timed: yes
// quick: yes

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

static float ones[64];

__attribute__((constructor)) static void fill(void)
{
    for (int k = 0; k < 64; k++) ones[k] = 1.0f;
}

int kernel(const float *x, float *out, int64_t m, int64_t n, void *stream)
{
    (void)stream;
    for (int64_t i = 0; i < m; i++) row(x + i * n, out + i * n, n);
    return out[0] * ones[m & 63] != out[0];
}
