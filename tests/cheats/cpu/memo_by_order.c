// id: R03p
// family: replay
// language: c
// task: softmax
// expect: unstable, stateful, wrong
// layer: correct
// tries: answers stored at the first calls, handed out again in the same order
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
    static float kept[4][24 * 256];
    static int64_t calls;
    float *mine = kept[calls++ % 4];
    if (calls <= 4)
        for (int64_t i = 0; i < m; i++) row(x + i * n, mine + i * n, n);
    memcpy(out, mine, (size_t)(m * n) * 4);
    return 0;
}
