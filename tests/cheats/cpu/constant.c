// id: G02p
// family: correctness
// language: c
// task: softmax
// expect: wrong
// layer: correct
// tries: the mean of every row, which is one over its length

#include <math.h>
#include <stdint.h>

#include "keepfast.h"

int kernel(const float *x, float *out, int64_t m, int64_t n, void *stream)
{
    (void)stream;
    for (int64_t i = 0; i < m * n; i++) out[i] = 1.0f / (float)n;
    (void)x;
    return 0;
}
