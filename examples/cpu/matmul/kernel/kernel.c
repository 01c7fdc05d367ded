// matrix product: the triple loop, tile by tile of b
#include <stdint.h>

#include "keepfast.h"
#include "keepfast_tunables.h"

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* c[0..width) += a[0..depth) * b[depth, width] */
static void row(const float *a, const float *b, float *c, int64_t n, int64_t depth, int64_t width)
{
    float sum[TILE_N] = {0.0f};
    for (int64_t p = 0; p < depth; p++)
        for (int64_t j = 0; j < width; j++)
            sum[j] += a[p] * b[p * n + j];
    for (int64_t j = 0; j < width; j++)
        c[j] += sum[j];
}

static void product(const float *a, const float *b, float *c, int64_t m, int64_t n, int64_t k)
{
    for (int64_t i = 0; i < m * n; i++)
        c[i] = 0.0f;
    for (int64_t p = 0; p < k; p += TILE_K)
        for (int64_t j = 0; j < n; j += TILE_N)
            for (int64_t i = 0; i < m; i++)
                row(a + i * k + p, b + p * n + j, c + i * n + j, n, least(TILE_K, k - p), least(TILE_N, n - j));
}

/* ---- The driver: one product a call. ---- */

int kernel(const float *a, const float *b, float *out, int64_t m, int64_t n, int64_t k, void *stream)
{
    (void)stream;
    product(a, b, out, m, n, k);
    return 0;
}
