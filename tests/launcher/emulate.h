// Enough of CUDA C++ to run kernels on the host: one thread a block, blocks one after the other. No order between threads is tested here.
// A kernel that touches memory it may not touch ends with 700, as on a card.
#include <csetjmp>
#include <csignal>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>

struct Dim {
    unsigned x, y, z;
};
static Dim blockIdx, threadIdx, blockDim = {1, 1, 1}, gridDim;
struct ulonglong2 {
    unsigned long long x, y;
};
extern "C" {
volatile unsigned shared_words[1 << 16];
unsigned long long emulate_ns;  // the card's clock: set before a kernel runs, and moved on by one that waits
}
#define EMULATED

static void __syncthreads() {}
static unsigned atomicAdd(unsigned *p, unsigned v) { return *p += v, *p - v; }

#define __global__
#define __device__
#define __shared__
#define __forceinline__ inline
#undef __noinline__
#define __noinline__
#define __launch_bounds__(...)

static sigjmp_buf emulate_back;
static void emulate_fault(int) { siglongjmp(emulate_back, 1); }

template <class... A, std::size_t... I>
static void emulate_call(void (*f)(A...), void **p, std::index_sequence<I...>) {
    f(*(A *)p[I]...);
}

template <class... A>
static int emulate_grid(void (*f)(A...), void **p, Dim grid) {
    struct sigaction mine = {}, before[2];
    mine.sa_handler = emulate_fault;
    mine.sa_flags = SA_NODEFER;
    sigaction(SIGSEGV, &mine, &before[0]);
    sigaction(SIGBUS, &mine, &before[1]);
    volatile int code = 700;
    if (!sigsetjmp(emulate_back, 1)) {
        gridDim = grid;
        for (unsigned z = 0; z < grid.z; z++)
            for (unsigned y = 0; y < grid.y; y++)
                for (unsigned x = 0; x < grid.x; x++) {
                    blockIdx = {x, y, z};
                    emulate_call(f, p, std::index_sequence_for<A...>());
                }
        code = 0;
    }
    sigaction(SIGSEGV, &before[0], nullptr);
    sigaction(SIGBUS, &before[1], nullptr);
    return code;
}

template <class... A>
static int emulate_shape(void (*)(A...), uint64_t *out) {  // (offset, size) of each parameter
    uint64_t at = 0, n = 0, sizes[] = {sizeof(A)..., 0}, aligns[] = {alignof(A)..., 1};
    for (; n < sizeof...(A); n++) {
        at = (at + aligns[n] - 1) / aligns[n] * aligns[n];
        out[2 * n] = at, out[2 * n + 1] = sizes[n];
        at += sizes[n];
    }
    return (int)n;
}

// KERNELS(X) lists the kernels of the file: X(name) X(name) ...
#define EMULATE_RUN(name) \
    if (!std::strcmp(kernel, #name)) return emulate_grid(name, p, Dim{x, y, z});
#define EMULATE_SHAPE(name) \
    if (!std::strcmp(kernel, #name)) return emulate_shape(name, out);
#define EMULATE                                                                                            \
    extern "C" int emulate_run(const char *kernel, void **p, unsigned x, unsigned y, unsigned z) {         \
        KERNELS(EMULATE_RUN)                                                                               \
        return 500;                                                                                        \
    }                                                                                                      \
    extern "C" int emulate_parameters(const char *kernel, uint64_t *out) {                                 \
        KERNELS(EMULATE_SHAPE)                                                                             \
        return -1;                                                                                         \
    }
