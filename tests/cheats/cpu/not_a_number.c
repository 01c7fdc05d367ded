// id: G07p
// family: correctness
// language: c
// task: softmax
// expect: wrong
// layer: correct
// tries: answers that compare with nothing

#include <math.h>
#include <stdint.h>

#include "keepfast.h"

int kernel(const float *x, float *out, int64_t m, int64_t n, void *stream)
{
    (void)stream;
    for (int64_t i = 0; i < m * n; i++) out[i] = NAN;
    (void)x;
    return 0;
}
