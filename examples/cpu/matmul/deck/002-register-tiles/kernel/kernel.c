// tiles of the result in vector registers, b packed into panels
#include <stdint.h>

#include "keepfast.h"
#include "keepfast_tunables.h"

#pragma GCC diagnostic ignored "-Wpsabi" /* wide vectors are only handed to inlined functions */

typedef float lanes __attribute__((vector_size(4 * LANES)));
typedef float place __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

#define PRAGMA(text) _Pragma(#text)
#define UNROLLED(times) PRAGMA(GCC unroll times)
#define INLINE static inline __attribute__((always_inline))
#define WIDTH (LANES * VECTORS)

static float panel[DEPTH * WIDTH] __attribute__((aligned(64)));

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* `depth` rows of b, WIDTH columns each, side by side in `panel`; columns that b does not have are 0. */
static void pack(const float *b, int64_t n, int64_t depth, int64_t width)
{
    for (int64_t p = 0; p < depth; p++)
        for (int64_t j = 0; j < WIDTH; j++)
            panel[p * WIDTH + j] = j < width ? b[p * n + j] : 0.0f;
}

INLINE void add(float *c, const lanes *sum, int64_t width, int first)
{
    float row[WIDTH];
    for (int v = 0; v < VECTORS; v++)
        *(place *)(row + v * LANES) = sum[v];
    for (int64_t j = 0; j < width; j++)
        c[j] = first ? row[j] : c[j] + row[j];
}

/* `rows` rows of c, one panel wide: += a[rows, depth] * panel. The sums stay in registers when `rows` is a constant. */
INLINE void tile(const float *a, int64_t k, float *c, int64_t n, int64_t depth, int64_t width, int first, const int rows)
{
    lanes sum[ROWS][VECTORS] = {{{0}}};
    for (int64_t p = 0; p < depth; p++) {
        UNROLLED(16)
        for (int r = 0; r < rows; r++) {
            UNROLLED(16)
            for (int v = 0; v < VECTORS; v++)
                sum[r][v] += a[r * k + p] * *(const lanes *)(panel + p * WIDTH + v * LANES);
        }
    }
    UNROLLED(16)
    for (int r = 0; r < rows; r++) {
        if (width == WIDTH) {
            UNROLLED(16)
            for (int v = 0; v < VECTORS; v++) {
                place *to = (place *)(c + r * n + v * LANES);
                if (!first)
                    sum[r][v] += *to;
                *to = sum[r][v];
            }
        } else {
            add(c + r * n, sum[r], width, first);
        }
    }
}

/* A few rows of a do not pay for packing b. */
static void few_rows(const float *a, const float *b, float *c, int64_t m, int64_t n, int64_t k)
{
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++)
            c[i * n + j] = 0.0f;
        for (int64_t p = 0; p < k; p++)
            for (int64_t j = 0; j < n; j++)
                c[i * n + j] += a[i * k + p] * b[p * n + j];
    }
}

static void product(const float *a, const float *b, float *c, int64_t m, int64_t n, int64_t k)
{
    if (m < 2 * ROWS) {
        few_rows(a, b, c, m, n, k);
        return;
    }
    for (int64_t p = 0; p < k; p += DEPTH)
        for (int64_t j = 0; j < n; j += WIDTH) {
            int64_t depth = least(DEPTH, k - p), width = least(WIDTH, n - j), i = 0;
            pack(b + p * n + j, n, depth, width);
            for (; i + ROWS <= m; i += ROWS)
                tile(a + i * k + p, k, c + i * n + j, n, depth, width, p == 0, ROWS);
            for (; i < m; i++)
                tile(a + i * k + p, k, c + i * n + j, n, depth, width, p == 0, 1);
        }
}

/* ---- The driver: one product a call. ---- */

int kernel(const float *a, const float *b, float *out, int64_t m, int64_t n, int64_t k, void *stream)
{
    (void)stream;
    product(a, b, out, m, n, k);
    return 0;
}
