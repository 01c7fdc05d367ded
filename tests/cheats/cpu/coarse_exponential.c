// id: G11q
// family: correctness
// language: c
// task: softmax
// expect: wrong
// layer: correct
// tries: an exponential that is right to three digits

#include <math.h>
#include <stdint.h>

#include "keepfast.h"

int kernel(const float *x, float *out, int64_t m, int64_t n, void *stream)
{
    (void)stream;
    for (int64_t i = 0; i < m; i++, x += n, out += n) {
        float max = x[0], sum = 0.0f;
        for (int64_t j = 1; j < n; j++)
            if (x[j] > max) max = x[j];
        for (int64_t j = 0; j < n; j++) {
            float d = 1.0f + (x[j] - max) / 1024.0f;
            for (int k = 0; k < 10; k++) d *= d;
            sum += out[j] = x[j] - max < -900.0f ? 0.0f : d;
        }
        for (int64_t j = 0; j < n; j++) out[j] /= sum;
    }
    return 0;
}
