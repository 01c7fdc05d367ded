// id: G01p
// family: correctness
// language: c
// task: softmax
// expect: wrong
// layer: correct
// tries: zeros, which small quotients nearly are
// quick: yes

#include <math.h>
#include <stdint.h>

#include "keepfast.h"

int kernel(const float *x, float *out, int64_t m, int64_t n, void *stream)
{
    (void)stream;
    for (int64_t i = 0; i < m * n; i++) out[i] = 0.0f;
    (void)x;
    return 0;
}
