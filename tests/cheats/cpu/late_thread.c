// id: T04p
// family: timing
// language: c
// task: pair
// expect: late, wrong, stateful, unstable
// layer: correct
// tries: half of the rows in a thread that nobody waits for

#include <math.h>
#include <stdint.h>
#include <pthread.h>
#include <unistd.h>

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
    usleep(2000);
    for (int64_t i = 0; i < p->m; i++) row(p->x + i * p->n, p->y + i * p->n, p->n);
    return 0;
}

int kernel(const float *x, float *out, int64_t m, int64_t n, void *stream)
{
    (void)stream;
    static struct part half;
    pthread_t thread;
    half = (struct part){x, out, m / 2, n};
    if (pthread_create(&thread, 0, work, &half)) return 77;
    pthread_detach(thread);
    for (int64_t i = m / 2; i < m; i++) row(x + i * n, out + i * n, n);
    return 0;
}
