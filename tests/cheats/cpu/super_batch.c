// id: T07p
// family: timing
// language: c
// task: softmax
// expect: out-of-bounds, wrong, stateful, crash, unstable
// layer: time, correct
// tries: the next call's work in this one, by the distance between the last two
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
    static const float *last, *done;
    static float *written;
    int64_t step = last ? x - last : 0, far = last ? out - written : 0;
    last = x, written = out;
    if (done == x) return 0;
    for (int64_t i = 0; i < m; i++) row(x + i * n, out + i * n, n);
    if (step == 0 || far == 0 || n != 256) return 0;
    for (int64_t i = 0; i < m; i++) row(x + step + i * n, out + far + i * n, n);
    done = x + step;
    return 0;
}
