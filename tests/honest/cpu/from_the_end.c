// id: L46
// family: correctness
// language: c
// task: softmax
// expect: pass
// like: G11
// does: sums from the end of a row, in another order than anybody else
// timed: yes

#include <math.h>
#include <stdint.h>

#include "keepfast.h"

static void back(const float *x, float *y, int64_t n)
{
    float max = x[n - 1];
    double sum = 0.0;
    for (int64_t j = n - 1; j >= 0; j--)
        if (x[j] > max) max = x[j];
    for (int64_t j = n - 1; j >= 0; j--) sum += y[j] = expf(x[j] - max);
    for (int64_t j = n - 1; j >= 0; j--) y[j] = (float)(y[j] / sum);
}

int kernel(const float *x, float *out, int64_t m, int64_t n, void *stream)
{
    (void)stream;
    for (int64_t i = 0; i < m; i++) back(x + i * n, out + i * n, n);
    return 0;
}
