/* Trusted inner loops of the CPU judge: new contents, poison, comparison of two arms, the sentinel, measured ceilings.
 * Loaded into the judge through ctypes. Sees buffers only; knows no task, no file, no verdict. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

static uint64_t hash64(uint64_t x) { /* splitmix64 finaliser */
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

/* dst[i] = a[i] or b[i], chosen by one keyed bit an element: a content nobody has seen, of the same distribution. */
#define MIX(NAME, T)                                                                                \
    static void NAME(T *restrict dst, const T *restrict a, const T *restrict b, size_t n, uint64_t key) { \
        for (size_t i = 0; i < n; i += 64) {                                                        \
            uint64_t bits = hash64(key ^ (i >> 6) * 0xd1342543de82ef95ull);                         \
            size_t m = n - i < 64 ? n - i : 64;                                                     \
            for (size_t j = 0; j < m; j++) {                                                        \
                T mask = (T)0 - (T)((bits >> j) & 1);                                               \
                dst[i + j] = (T)((a[i + j] & mask) | (b[i + j] & (T)~mask));                        \
            }                                                                                       \
        }                                                                                           \
    }
MIX(mix8, uint8_t)
MIX(mix16, uint16_t)
MIX(mix32, uint32_t)
MIX(mix64, uint64_t)

void kf_mix(void *dst, const void *a, const void *b, size_t n, size_t itemsize, uint64_t key) {
    if (itemsize == 4) mix32(dst, a, b, n, key);
    else if (itemsize == 8) mix64(dst, a, b, n, key);
    else if (itemsize == 2) mix16(dst, a, b, n, key);
    else mix8(dst, a, b, n * itemsize, key);
}

void kf_fill(uint32_t *dst, size_t words, uint32_t pattern) {
    for (size_t i = 0; i < words; i++) dst[i] = pattern;
}

/* Index of the first word that is not the pattern, or `words`. */
size_t kf_intact(const uint32_t *src, size_t words, uint32_t pattern) {
    for (size_t i = 0; i < words; i++)
        if (src[i] != pattern) return i;
    return words;
}

/* Slices of `len` elements: RMS of the difference at most bounds[0] times the RMS of b, worst element at most bounds[1] times
 * it. Returns the number of slices that differ more; the first such slice in *first. NaN differs. An (almost) empty slice borrows
 * bounds[2] of the RMS of all of b, as compare.py does: else harmless differences there would use up what is looked at. */
#define COMPARE(NAME, T)                                                                                      \
    static double whole_##NAME(const T *b, size_t n) {                                                        \
        double sum = 0;                                                                                       \
        for (size_t i = 0; i < n; i++) sum += (double)b[i] * (double)b[i];                                    \
        return sqrt(sum / (double)n);                                                                         \
    }                                                                                                         \
    size_t NAME(const T *a, const T *b, size_t slices, size_t len, const double bounds[3], size_t *first) {   \
        size_t bad = 0;                                                                                       \
        double least = -1;                                                                                    \
        const T *all = b;                                                                                     \
        for (size_t s = 0; s < slices; s++, a += len, b += len) {                                             \
            if (memcmp(a, b, len * sizeof(T)) == 0) continue;                                                 \
            double err[8] = {0}, ref[8] = {0}, top[8] = {0};                                                  \
            for (size_t i = 0; i < len; i++) {                                                                \
                double d = (double)a[i] - (double)b[i], r = (double)b[i];                                     \
                double m = fabs(d);                                                                           \
                err[i & 7] += d * d;                                                                          \
                ref[i & 7] += r * r;                                                                          \
                top[i & 7] = m > top[i & 7] ? m : top[i & 7];                                                 \
            }                                                                                                 \
            double e = 0, r = 0, t = 0;                                                                       \
            for (int k = 0; k < 8; k++) { e += err[k]; r += ref[k]; t = top[k] > t ? top[k] : t; }            \
            double rms = sqrt(r / (double)len);                                                               \
            if (sqrt(e / (double)len) <= bounds[0] * rms && t <= bounds[1] * rms) continue;                   \
            if (least < 0) least = fmax(1e-300, bounds[2] * whole_##NAME(all, slices * len));                 \
            if (rms < least) rms = least;                                                                     \
            if (!(sqrt(e / (double)len) <= bounds[0] * rms && t <= bounds[1] * rms)) {                        \
                if (!bad++) *first = s;                                                                       \
            }                                                                                                 \
        }                                                                                                     \
        return bad;                                                                                           \
    }
COMPARE(kf_compare32, float)
COMPARE(kf_compare64, double)

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

/* Time in ns of a fixed piece of arithmetic: says whether this core runs as it did. */
uint64_t kf_sentinel(uint64_t rounds) {
    static volatile uint64_t sink __attribute__((unused));
    uint64_t t0 = now(), x = 88172645463325252ull;
    for (uint64_t i = 0; i < rounds; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    sink = x;
    return now() - t0;
}

/* Best of `repeats` timings in ns of one pass over n bytes: 0 copy (n/2 to n/2), 1 read, 2 write. */
uint64_t kf_bandwidth(uint8_t *buffer, size_t n, int what, int repeats) {
    static volatile uint64_t sink __attribute__((unused));
    uint64_t best = UINT64_MAX;
    for (int r = 0; r < repeats; r++) {
        uint64_t t0 = now(), t;
        if (what == 0) memcpy(buffer, buffer + n / 2, n / 2);
        else if (what == 2) memset(buffer, r, n);
        else {
            const uint64_t *w = (const uint64_t *)buffer;
            uint64_t acc[16] = {0};
            for (size_t i = 0; i + 16 <= n / 8; i += 16)
                for (int k = 0; k < 16; k++) acc[k] += w[i + k];
            uint64_t s = 0;
            for (int k = 0; k < 16; k++) s += acc[k];
            sink = s;
        }
        t = now() - t0;
        if (t < best) best = t;
    }
    return best;
}

/* GFLOP/s of `rounds` steps of 10 independent multiply-adds on vectors of BYTES: enough to fill the pipes, few enough to stay in
 * registers where the vector is one register. A wider vector than this CPU has is split, spilled and slow, so all are tried. */
#define FLOPS(NAME, BYTES)                                                             \
    typedef float NAME##_lanes __attribute__((vector_size(BYTES)));                    \
    static double NAME(uint64_t rounds) {                                              \
        static volatile float sink __attribute__((unused));                            \
        NAME##_lanes acc[10], x, y;                                                    \
        for (int l = 0; l < BYTES / 4; l++) { x[l] = 1.0f + 1e-7f * (float)l; y[l] = 1e-9f; } \
        for (int k = 0; k < 10; k++) acc[k] = x * (float)k;                            \
        uint64_t t0 = now(), t;                                                        \
        for (uint64_t i = 0; i < rounds; i++) {                                        \
            _Pragma("GCC unroll 10") for (int k = 0; k < 10; k++) acc[k] = acc[k] * x + y; \
        }                                                                              \
        t = now() - t0;                                                                \
        float s = 0;                                                                   \
        for (int k = 0; k < 10; k++)                                                   \
            for (int l = 0; l < BYTES / 4; l++) s += acc[k][l];                        \
        sink = s;                                                                      \
        return 2.0 * 10 * (BYTES / 4) * (double)rounds / (double)(t ? t : 1);          \
    }
FLOPS(flops64, 64)
FLOPS(flops32, 32)
FLOPS(flops16, 16)

double kf_gflops32(uint64_t rounds, int repeats) {
    double best = 0;
    for (int r = 0; r < repeats; r++) best = fmax(fmax(best, flops64(rounds)), fmax(flops32(rounds), flops16(rounds)));
    return best;
}
