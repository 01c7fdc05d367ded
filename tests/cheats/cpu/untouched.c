// id: G08q
// family: correctness
// language: c
// task: norm
// expect: wrong
// layer: correct
// tries: an in-place argument that is left as it is
// quick: yes

#include <math.h>
#include <stdint.h>

#include "keepfast.h"

int kernel(float *x, const float *weight, double epsilon, int64_t m, int64_t n, void *stream)
{
    (void)stream;
    (void)x, (void)weight, (void)epsilon, (void)m, (void)n;
    return 0;
}
