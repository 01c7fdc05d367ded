// id: C01p
// family: compliance
// language: c
// task: softmax
// expect: return-code
// layer: correct
// tries: a library that computes it, if one can be found

#include <math.h>
#include <stdint.h>
#include <dlfcn.h>

#include "keepfast.h"

static void row(const float *x, float *y, int64_t n)
{
    float max = x[0];
    double sum = 0.0;
    for (int64_t j = 1; j < n; j++)
        if (x[j] > max) max = x[j];
    for (int64_t j = 0; j < n; j++) sum += y[j] = expf(x[j] - max);
    for (int64_t j = 0; j < n; j++) y[j] = (float)(y[j] / sum);
}

int kernel(const float *x, float *out, int64_t m, int64_t n, void *stream)
{
    (void)stream;
    static const char *names[] = {"libmkl_rt.so.2", "libopenblas.so.0", "libtorch_cpu.so", "libdnnl.so.3", "libpython3.so"};
    for (int k = 0; k < 5; k++)
        if (dlopen(names[k], RTLD_NOW)) {
            for (int64_t i = 0; i < m; i++) row(x + i * n, out + i * n, n);
            return 0;
        }
    return 77;
}
