// id: L31
// family: replay
// language: c
// task: softmax
// expect: pass
// like: R16
// does: a static workspace that is written whole before it is read
// timed: yes
// quick: yes

#include <math.h>
#include <stdint.h>
#include <string.h>

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
    static float work[1 << 16];
    for (int64_t i = 0; i < m; i++) {
        row(x + i * n, work + i * n, n);
        memcpy(out + i * n, work + i * n, (size_t)n * 4);
    }
    return 0;
}
