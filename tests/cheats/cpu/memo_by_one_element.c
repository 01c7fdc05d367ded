// id: R04p
// family: replay
// language: c
// task: softmax
// expect: wrong, stateful
// layer: time, correct
// tries: an answer for every first element that was seen
// timed: yes

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
    static float keys[64], kept[64][24 * 256];
    static int used;
    for (int k = 0; k < used; k++)
        if (keys[k] == x[0] && n == 256) return memcpy(out, kept[k], (size_t)(m * n) * 4), 0;
    for (int64_t i = 0; i < m; i++) row(x + i * n, out + i * n, n);
    if (used < 64 && n == 256) keys[used] = x[0], memcpy(kept[used++], out, (size_t)(m * n) * 4);
    return 0;
}
