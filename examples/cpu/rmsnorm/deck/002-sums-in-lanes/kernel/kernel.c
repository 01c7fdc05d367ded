// one pass adds and squares, sums in float lanes that the compiler keeps in vector registers
#include <math.h>
#include <stdint.h>

#include "keepfast.h"
#include "keepfast_tunables.h"

/* Sums of LANES columns each lose about 0.1 sqrt(n / LANES) ulp, much less together: good for rows of 100,000. */
static void row(float *restrict input, float *restrict residual, const float *restrict weight, double epsilon, int64_t n)
{
    float lane[LANES] = {0.0f};
    int64_t j = 0;
    for (; j + LANES <= n; j += LANES) {
        if (PREFETCH)
            __builtin_prefetch(input + j + PREFETCH, 1);
        if (PREFETCH)
            __builtin_prefetch(residual + j + PREFETCH, 1);
        for (int l = 0; l < LANES; l++) {
            float total = residual[j + l] + input[j + l];
            residual[j + l] = total;
            lane[l] += total * total;
        }
    }
    double sum = 0.0;
    for (; j < n; j++) {
        residual[j] += input[j];
        sum += residual[j] * residual[j];
    }
    for (int l = 0; l < LANES; l++)
        sum += lane[l];

    float scale = (float)(1.0 / sqrt(sum / (double)n + epsilon));
    for (j = 0; j < n; j++)
        input[j] = residual[j] * scale * weight[j];
}

/* ---- Rows are independent of each other: the driver computes them one by one. ---- */

int kernel(float *input, float *residual, const float *weight, double epsilon, int64_t m, int64_t n, void *stream)
{
    (void)stream;
    for (int64_t i = 0; i < m; i++)
        row(input + i * n, residual + i * n, weight, epsilon, n);
    return 0;
}
