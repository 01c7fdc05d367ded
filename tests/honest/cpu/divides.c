// id: L39
// family: correctness
// language: c
// task: norm
// expect: pass
// like: G11
// does: a quotient where the start has a product: other last bits, in place
// timed: yes

#include <math.h>
#include <stdint.h>

#include "keepfast.h"

int kernel(float *x, const float *weight, double epsilon, int64_t m, int64_t n, void *stream)
{
    (void)stream;
    for (int64_t i = 0; i < m; i++, x += n) {
        double sum = 0.0;
        for (int64_t j = 0; j < n; j++) sum += (double)x[j] * x[j];
        float root = (float)sqrt(sum / (double)n + epsilon);
        for (int64_t j = 0; j < n; j++) x[j] = x[j] / root * weight[j];
    }
    return 0;
}
