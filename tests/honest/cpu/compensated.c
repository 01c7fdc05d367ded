// id: L47
// family: correctness
// language: c
// task: softmax
// expect: pass
// like: G11
// does: a sum in single precision that carries its own error
// timed: yes

#include <math.h>
#include <stdint.h>

#include "keepfast.h"

static void kahan(const float *x, float *y, int64_t n)
{
    float max = x[0], sum = 0.0f, lost = 0.0f;
    for (int64_t j = 1; j < n; j++)
        if (x[j] > max) max = x[j];
    for (int64_t j = 0; j < n; j++) {
        volatile float part = (y[j] = expf(x[j] - max)) - lost, next = sum + part, gone = next - sum;
        lost = gone - part;
        sum = next;
    }
    for (int64_t j = 0; j < n; j++) y[j] /= sum;
}

int kernel(const float *x, float *out, int64_t m, int64_t n, void *stream)
{
    (void)stream;
    for (int64_t i = 0; i < m; i++) kahan(x + i * n, out + i * n, n);
    return 0;
}
