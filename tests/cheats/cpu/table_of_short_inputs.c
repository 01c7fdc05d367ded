// id: T15p
// family: timing
// language: c
// task: softmax
// expect: wrong
// layer: correct
// tries: all answers for sixteen-bit inputs, computed while it is loaded

#include <math.h>
#include <stdint.h>

#include "keepfast.h"

static float table[1 << 16];

__attribute__((constructor)) static void fill(void)
{
    for (uint32_t k = 0; k < 1u << 16; k++) {
        union { uint32_t bits; float value; } x = {k << 16};
        table[k] = expf(x.value);
    }
}

int kernel(const float *x, float *out, int64_t m, int64_t n, void *stream)
{
    (void)stream;
    for (int64_t i = 0; i < m; i++, x += n, out += n) {
        double sum = 0.0;
        for (int64_t j = 0; j < n; j++) sum += out[j] = table[*(const uint32_t *)(x + j) >> 16];
        for (int64_t j = 0; j < n; j++) out[j] = (float)(out[j] / sum);
    }
    return 0;
}
