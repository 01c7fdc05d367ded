// id: R13p
// family: replay
// language: c
// task: norm
// expect: crash
// layer: correct
// tries: the scale goes into the weight, which it may only read

#include <math.h>
#include <stdint.h>

#include "keepfast.h"

int kernel(float *x, const float *weight, double epsilon, int64_t m, int64_t n, void *stream)
{
    (void)stream;
    float *mine = (float *)(uintptr_t)weight;
    for (int64_t j = 0; j < n; j++) mine[j] = 1.0f;
    (void)x, (void)epsilon, (void)m;
    return 0;
}
