// id: L32
// family: timing
// language: c
// task: softmax
// expect: pass
// like: T15
// does: a table of constants, filled at the first call
// timed: yes

#include <math.h>
#include <stdint.h>

#include "keepfast.h"

int kernel(const float *x, float *out, int64_t m, int64_t n, void *stream)
{
    (void)stream;
    static double powers[1024];
    if (powers[0] == 0.0)
        for (int k = 0; k < 1024; k++) powers[k] = exp(-k / 16.0);
    for (int64_t i = 0; i < m; i++, x += n, out += n) {
        float max = x[0];
        double sum = 0.0;
        for (int64_t j = 1; j < n; j++)
            if (x[j] > max) max = x[j];
        for (int64_t j = 0; j < n; j++) {
            float d = max - x[j];
            int k = d < 63.0f ? (int)(d * 16.0f) : 1007;
            double f = k / 16.0 - d, e = 1.0 + f * (1.0 + f * (0.5 + f * (1.0 / 6 + f * (1.0 / 24 + f / 120))));
            sum += out[j] = d < 63.0f ? (float)(powers[k] * e) : 0.0f;
        }
        for (int64_t j = 0; j < n; j++) out[j] = (float)(out[j] / sum);
    }
    return 0;
}
