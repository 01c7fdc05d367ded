// id: L49
// family: correctness
// language: c
// task: softmax
// expect: pass
// like: G13
// does: the order of a sum is drawn by the clock: never the same last bits, and always a right answer
// timed: yes

#include <math.h>
#include <stdint.h>
#include <time.h>

#include "keepfast.h"

int kernel(const float *x, float *out, int64_t m, int64_t n, void *stream)
{
    (void)stream;
    int64_t shift = clock() % 7;
    for (int64_t i = 0; i < m; i++, x += n, out += n) {
        float max = x[0], part[16] = {0.0f};
        double sum = 0.0;
        for (int64_t j = 1; j < n; j++)
            if (x[j] > max) max = x[j];
        for (int64_t j = 0; j < n; j++) part[(j + shift) * (shift + 3) % 16] += out[j] = expf(x[j] - max);
        for (int k = 0; k < 16; k++) sum += part[k];
        for (int64_t j = 0; j < n; j++) out[j] = (float)(out[j] / sum);
    }
    return 0;
}
