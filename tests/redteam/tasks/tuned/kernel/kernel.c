// everything in vector lanes, their number and the unrolling left to the search
#include <math.h>
#include <stdint.h>

#include "keepfast.h"
#include "keepfast_tunables.h"

#pragma GCC diagnostic ignored "-Wpsabi" /* wide vectors are only handed to inlined functions */

typedef float lanes __attribute__((vector_size(4 * LANES)));
typedef uint32_t words __attribute__((vector_size(4 * LANES)));
typedef float place __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

#define PRAGMA(text) _Pragma(#text)
#define UNROLLED(times) PRAGMA(GCC unroll times)
#define INLINE static inline __attribute__((always_inline))
#define STEP (LANES * UNROLL)
#define PART 32 /* steps summed in float before they are added to the total: keeps the sum exact to about 1 ulp */

INLINE lanes load(const float *from)
{
    return *(const place *)from;
}

INLINE void store(float *to, lanes value)
{
    *(place *)to = value;
}

INLINE lanes larger(lanes a, lanes b)
{
    words first = (words)(a > b);
    return (lanes)(((words)a & first) | ((words)b & ~first));
}

/* e^x for x <= 0 within about 1 ulp: x = k ln 2 + r, e^x = 2^k e^r. Adding 1.5 * 2^23 rounds to the integer k and
   leaves it in the low bits; ln 2 is split so that k times its first part is exact. Below e^-87 the result is 0. */
INLINE lanes exp_lanes(lanes x)
{
    lanes t = x * 1.44269504f + 12582912.0f;
    lanes k = t - 12582912.0f;
    lanes r = (x - k * 0.693359375f) + k * 2.12194440e-4f;
    lanes p = 1.38145406e-3f * r + 8.36874545e-3f;
    p = p * r + 4.1668389e-2f;
    p = p * r + 1.66665211e-1f;
    p = p * r + 4.9999994e-1f;
    p = p * (r * r) + r + 1.0f;
    return (lanes)(((words)p + ((words)t << 23)) & (words)(x > -87.0f));
}

static float largest(const float *x, int64_t n)
{
    float max = x[0];
    int64_t j = 0;
    if (n >= STEP) {
        lanes top[UNROLL];
        for (int u = 0; u < UNROLL; u++)
            top[u] = load(x + u * LANES);
        for (j = STEP; j + STEP <= n; j += STEP)
            UNROLLED(UNROLL)
            for (int u = 0; u < UNROLL; u++)
                top[u] = larger(load(x + j + u * LANES), top[u]);
        for (int u = 0; u < UNROLL; u++)
            for (int l = 0; l < LANES; l++)
                max = top[u][l] > max ? top[u][l] : max;
    }
    for (; j < n; j++)
        max = x[j] > max ? x[j] : max;
    return max;
}

/* The sum of e^(x - max); with KEEP the exponentials stay in y, without it they are computed again when they are scaled. */
static double total(const float *x, float *y, int64_t n, float max)
{
    double sum = 0.0;
    int64_t j = 0;
    while (j + STEP <= n) {
        int64_t end = j + PART * STEP < n ? j + PART * STEP : n;
        lanes part[UNROLL] = {{0}};
        for (; j + STEP <= end; j += STEP) {
            if (PREFETCH)
                __builtin_prefetch(x + j + PREFETCH);
            UNROLLED(UNROLL)
            for (int u = 0; u < UNROLL; u++) {
                lanes e = exp_lanes(load(x + j + u * LANES) - max);
                if (KEEP)
                    store(y + j + u * LANES, e);
                part[u] += e;
            }
        }
        for (int u = 1; u < UNROLL; u++)
            part[0] += part[u];
        for (int l = 0; l < LANES; l++)
            sum += part[0][l];
    }
    for (; j < n; j++)
        sum += y[j] = expf(x[j] - max);
    return sum;
}

static void row(const float *x, float *y, int64_t n)
{
    float max = largest(x, n);
    float scale = (float)(1.0 / total(x, y, n, max));
    int64_t j = 0;
    for (; j + STEP <= n; j += STEP)
        UNROLLED(UNROLL)
        for (int u = 0; u < UNROLL; u++) {
            float *to = y + j + u * LANES;
            store(to, (KEEP ? load(to) : exp_lanes(load(x + j + u * LANES) - max)) * scale);
        }
    for (; j < n; j++)
        y[j] *= scale;
}

/* ---- Rows are independent of each other: the driver computes them one by one. ---- */

int kernel(const float *x, float *out, int64_t m, int64_t n, void *stream)
{
    (void)stream;
    for (int64_t i = 0; i < m; i++)
        row(x + i * n, out + i * n, n);
    return 0;
}
