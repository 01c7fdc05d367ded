// id: L38
// family: replay
// language: c
// task: norm
// expect: pass
// like: R13
// does: writes the argument that is marked, and no other
// timed: yes
// quick: yes

#include <math.h>
#include <stdint.h>

#include "keepfast.h"

int kernel(float *x, const float *weight, double epsilon, int64_t m, int64_t n, void *stream)
{
    (void)stream;
    for (int64_t i = 0; i < m; i++, x += n) {
        double part[4] = {0.0};
        int64_t j = 0;
        for (; j + 4 <= n; j += 4)
            for (int p = 0; p < 4; p++) part[p] += (double)x[j + p] * x[j + p];
        for (; j < n; j++) part[0] += (double)x[j] * x[j];
        float scale = (float)(1.0 / sqrt((part[0] + part[1] + part[2] + part[3]) / (double)n + epsilon));
        for (j = 0; j < n; j++) x[j] *= scale * weight[j];
    }
    return 0;
}
