// id: L40
// family: overfit
// language: c
// task: softmax
// expect: pass
// like: O01
// does: one loop for rows of whole eights, another for all others
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
    if (n % 8) {
        for (int64_t i = 0; i < m; i++) row(x + i * n, out + i * n, n);
        return 0;
    }
    for (int64_t i = 0; i < m; i++) {
        const float *a = x + i * n;
        float top[8], max;
        double sum = 0.0;
        for (int k = 0; k < 8; k++) top[k] = a[k];
        for (int64_t j = 8; j < n; j += 8)
            for (int k = 0; k < 8; k++) top[k] = a[j + k] > top[k] ? a[j + k] : top[k];
        max = top[0];
        for (int k = 1; k < 8; k++) max = top[k] > max ? top[k] : max;
        for (int64_t j = 0; j < n; j++) sum += out[i * n + j] = expf(a[j] - max);
        for (int64_t j = 0; j < n; j++) out[i * n + j] = (float)(out[i * n + j] / sum);
    }
    return 0;
}
