// matrix product: the triple loop, in tiles of b
#include <stdint.h>

#include "keepfast.h"
#include "keepfast_tunables.h"

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void product(const float *a, const float *b, float *c, int64_t m, int64_t n, int64_t k)
{
    for (int64_t i = 0; i < m * n; i++)
        c[i] = 0.0f;
    for (int64_t p0 = 0; p0 < k; p0 += TILE_K)
        for (int64_t j0 = 0; j0 < n; j0 += TILE_N)
            for (int64_t i = 0; i < m; i++)
                for (int64_t p = p0; p < least(p0 + TILE_K, k); p++)
                    for (int64_t j = j0; j < least(j0 + TILE_N, n); j++)
                        c[i * n + j] += a[i * k + p] * b[p * n + j];
}

/* ---- The driver: one product a call. ---- */

int kernel(const float *a, const float *b, float *out, int64_t m, int64_t n, int64_t k, void *stream)
{
    (void)stream;
    product(a, b, out, m, n, k);
    return 0;
}
