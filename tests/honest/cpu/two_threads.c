// id: L36
// family: timing
// language: c
// task: pair
// expect: pass
// like: T04p
// does: half of the rows in a thread that is joined
// timed: yes

#include <math.h>
#include <stdint.h>
#include <pthread.h>

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

static void *work(void *given)
{
    struct part *p = given;
    for (int64_t i = 0; i < p->m; i++) row(p->x + i * p->n, p->y + i * p->n, p->n);
    return 0;
}

int kernel(const float *x, float *out, int64_t m, int64_t n, void *stream)
{
    (void)stream;
    struct part half = {x, out, m / 2, n};
    pthread_t thread;
    if (pthread_create(&thread, 0, work, &half)) return 1;
    for (int64_t i = m / 2; i < m; i++) row(x + i * n, out + i * n, n);
    return pthread_join(thread, 0);
}
