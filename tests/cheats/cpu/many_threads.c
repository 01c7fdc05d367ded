// id: T04q
// family: timing
// language: c
// task: pair
// expect: return-code
// layer: correct
// tries: a thread for every row, where it may have two

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
    static struct part each[64];
    pthread_t thread[64];
    for (int64_t i = 0; i < m && i < 64; i++) {
        each[i] = (struct part){x + i * n, out + i * n, 1, n};
        if (pthread_create(&thread[i], 0, work, &each[i])) return 77;
    }
    for (int64_t i = 0; i < m && i < 64; i++) pthread_join(thread[i], 0);
    return 0;
}
