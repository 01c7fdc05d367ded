// Blocked triple loop: tiles of b of 64 by 256, four rows of the result at a time.
#include <stdint.h>
#include <string.h>

#include "keepfast.h"

#define ROWS 4
#define DEPTH 64
#define WIDTH 256

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* c[ROWS, width] += a[ROWS, depth] * b[depth, width] */
static void rows(const float *a, int64_t k, const float *b, float *c, int64_t n, int64_t depth, int64_t width)
{
    float sum[ROWS][WIDTH] = {{0.0f}};
    for (int64_t p = 0; p < depth; p++)
        for (int64_t j = 0; j < width; j++)
            for (int r = 0; r < ROWS; r++)
                sum[r][j] += a[r * k + p] * b[p * n + j];
    for (int r = 0; r < ROWS; r++)
        for (int64_t j = 0; j < width; j++)
            c[r * n + j] += sum[r][j];
}

static void row(const float *a, const float *b, float *c, int64_t n, int64_t depth, int64_t width)
{
    for (int64_t p = 0; p < depth; p++)
        for (int64_t j = 0; j < width; j++)
            c[j] += a[p] * b[p * n + j];
}

int kernel(const float *a, const float *b, float *out, int64_t m, int64_t n, int64_t k, void *stream)
{
    (void)stream;
    memset(out, 0, sizeof(float) * (size_t)(m * n));
    for (int64_t p = 0; p < k; p += DEPTH)
        for (int64_t j = 0; j < n; j += WIDTH) {
            const int64_t depth = least(DEPTH, k - p), width = least(WIDTH, n - j);
            int64_t i = 0;
            for (; i + ROWS <= m; i += ROWS)
                rows(a + i * k + p, k, b + p * n + j, out + i * n + j, n, depth, width);
            for (; i < m; i++)
                row(a + i * k + p, b + p * n + j, out + i * n + j, n, depth, width);
        }
    return 0;
}
