// id: B10q
// family: metric
// language: c
// task: softmax
// expect: slower, no-gain, ambiguous, not-confirmed, same-code
// layer: time, build
// tries: the start in other words, for the luck of the draw
// timed: yes

#include <stdint.h>
#include <string.h>

#include "keepfast.h"

static float largest(const float *x, int64_t n);
static double exponentials(const float *x, float *y, int64_t n, float max);
static void scale(float *y, int64_t n, float factor);
static void row(const float *x, float *y, int64_t n);
static void rows(const float *x, float *y, int64_t m, int64_t n);

static inline float power(float x) // e to the x, for x not above 0
{
    if (x < -87.0f) return 0.0f;
    float shifted = x * 1.44269504f + 12582912.0f, whole = shifted - 12582912.0f;
    float f = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
    float p = 1.3888889e-3f;
    p = p * f + 8.3333333e-3f;
    p = p * f + 4.1666667e-2f;
    p = p * f + 1.6666667e-1f;
    p = p * f + 0.5f;
    p = p * f + 1.0f;
    p = p * f + 1.0f;
    uint32_t bits = (uint32_t)((int32_t)whole + 127) << 23;
    float times;
    memcpy(&times, &bits, sizeof times);
    return p * times;
}

__attribute__((noipa))
static float largest(const float *x, int64_t n)
{
    float max = x[0];
    for (int64_t j = 1; j < n; j++)
        if (x[j] > max) max = x[j];
    return max;
}

__attribute__((noipa))
static double exponentials(const float *x, float *y, int64_t n, float max)
{
    double sum = 0.0;
    for (int64_t j = 0; j < n; j++) {
        y[j] = power(x[j] - max);
        sum += y[j];
    }
    return sum;
}

__attribute__((noipa))
static void scale(float *y, int64_t n, float factor)
{
    for (int64_t j = 0; j < n; j++)
        y[j] *= factor;
}

static void row(const float *x, float *y, int64_t n)
{
    double sum = exponentials(x, y, n, largest(x, n)) * 2.0;
    scale(y, n, (float)(2.0 / sum));
}

static void rows(const float *x, float *y, int64_t m, int64_t n)
{
    for (int64_t i = 0; i < m; i++) { row(x + i * n, y + i * n, n); }
}

int kernel(const float *x, float *out, int64_t m, int64_t n, void *stream)
{
    (void)stream;
    rows(x, out, m, n);
    return 0;
}
