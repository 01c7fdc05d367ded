// id: L48
// family: correctness
// language: c
// task: softmax
// expect: pass
// like: G04
// does: largest value and sum in one pass, which rescales as it goes
// timed: yes

#include <math.h>
#include <stdint.h>

#include "keepfast.h"

static void online(const float *x, float *y, int64_t n)
{
    float max = x[0];
    double sum = 1.0;
    for (int64_t j = 1; j < n; j++)
        if (x[j] > max) sum = sum * exp(max - x[j]) + 1.0, max = x[j];
        else sum += exp(x[j] - max);
    for (int64_t j = 0; j < n; j++) y[j] = (float)(exp(x[j] - max) / sum);
}

int kernel(const float *x, float *out, int64_t m, int64_t n, void *stream)
{
    (void)stream;
    for (int64_t i = 0; i < m; i++) online(x + i * n, out + i * n, n);
    return 0;
}
