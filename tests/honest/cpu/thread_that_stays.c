// id: L37
// family: timing
// language: c
// task: pair
// expect: pass
// like: T03
// does: a thread that waits for work between calls, and has done it when the call returns
// timed: yes

#include <math.h>
#include <stdint.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

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

struct part { const float *x; float *y; int64_t m, n; };
static struct part half;
static atomic_long given, taken;

static void *serve(void *nothing)
{
    for (long n = 1;; n++) {
        while (atomic_load(&given) < n) sched_yield();
        for (int64_t i = 0; i < half.m; i++) row(half.x + i * half.n, half.y + i * half.n, half.n);
        atomic_store(&taken, n);
    }
    return nothing;
}

int kernel(const float *x, float *out, int64_t m, int64_t n, void *stream)
{
    (void)stream;
    static pthread_t thread;
    if (!thread && pthread_create(&thread, 0, serve, 0)) return 1;
    half = (struct part){x, out, m / 2, n};
    atomic_fetch_add(&given, 1);
    for (int64_t i = m / 2; i < m; i++) row(x + i * n, out + i * n, n);
    while (atomic_load(&taken) != atomic_load(&given)) sched_yield();
    return 0;
}
