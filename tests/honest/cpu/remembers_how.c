// id: L41
// family: replay
// language: c
// task: softmax
// expect: pass
// like: R03p
// does: what is remembered by shape is how to go on, not what came out
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

int kernel(const float *x, float *out, int64_t m, int64_t n, void *stream)
{
    (void)stream;
    static int64_t known;
    static void (*how)(const float *, float *, int64_t);
    if (known != n) known = n, how = row;
    for (int64_t i = 0; i < m; i++) how(x + i * n, out + i * n, n);
    return 0;
}
