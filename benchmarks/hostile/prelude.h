// Stands before every attack. An attack returns REFUSED when nothing of it went through, and above 1000 the line that did.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <math.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timex.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "keepfast.h"

enum { REFUSED = 77, ALL_WELL = -1 }; // ALL_WELL: what the attack left in the output is the answer
#define TRY(attempt) do { errno = 0; if ((long)(attempt) >= 0) return 1000 + __LINE__; } while (0)

static const float *X; // the arguments of the call, or nothing while loading
static float *OUT;
static int64_t M, N;
extern char **environ;

__attribute__((unused)) static int honest(void)
{
    for (int64_t i = 0; i < M; i++) {
        const float *x = X + i * N;
        float *y = OUT + i * N, max = x[0];
        double sum = 0.0;
        for (int64_t j = 1; j < N; j++)
            if (x[j] > max) max = x[j];
        for (int64_t j = 0; j < N; j++) sum += y[j] = expf(x[j] - max);
        for (int64_t j = 0; j < N; j++) y[j] = (float)(y[j] / sum);
    }
    return 0;
}

__attribute__((unused)) static void busy(double seconds)
{
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    do clock_gettime(CLOCK_MONOTONIC, &b);
    while (b.tv_sec - a.tv_sec + 1e-9 * (b.tv_nsec - a.tv_nsec) < seconds);
}
