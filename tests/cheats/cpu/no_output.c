// id: G08p
// family: correctness
// language: c
// task: softmax
// expect: wrong
// layer: correct
// tries: nothing at all, and says that all went well

#include <math.h>
#include <stdint.h>

#include "keepfast.h"

int kernel(const float *x, float *out, int64_t m, int64_t n, void *stream)
{
    (void)stream;
    (void)x, (void)out, (void)m, (void)n;
    return 0;
}
