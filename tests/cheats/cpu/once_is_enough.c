// id: R14p
// family: replay
// language: c
// task: norm
// expect: wrong, stateful
// layer: correct
// tries: a lighter argument for later calls: once done, never again

#include <math.h>
#include <stdint.h>

#include "keepfast.h"

int kernel(float *x, const float *weight, double epsilon, int64_t m, int64_t n, void *stream)
{
    (void)stream;
    static const float *done;
    if (done == x) return 0;
    done = x;
    for (int64_t i = 0; i < m; i++, x += n) {
        double sum = 0.0;
        for (int64_t j = 0; j < n; j++) sum += (double)x[j] * x[j];
        float scale = (float)(1.0 / sqrt(sum / (double)n + epsilon));
        for (int64_t j = 0; j < n; j++) x[j] *= scale * weight[j];
    }
    return 0;
}
