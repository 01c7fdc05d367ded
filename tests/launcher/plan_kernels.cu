// Kernels of plans in tests: for a card, or for the host after emulate.h. `n` float32 elements a call.

typedef unsigned long long u64;

#define EACH(i, n) for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += (u64)gridDim.x * blockDim.x)

extern "C" __global__ void scale(float *out, const float *x, u64 n, float factor) { EACH(i, n) out[i] = x[i] * factor; }

// The same, less exactly: right, not bit-identical.
extern "C" __global__ void scale_apart(float *out, const float *x, u64 n, float factor) { EACH(i, n) out[i] = x[i] * factor * 1.0000002f; }

extern "C" __global__ void scale_wrong(float *out, const float *x, u64 n, float factor) {
    EACH(i, n) out[i] = x[i] * factor + (i == n / 2 ? 1.0f : 0.0f);
}

extern "C" __global__ void scale_half(float *out, const float *x, u64 n, float factor) { EACH(i, n / 2) out[i] = x[i] * factor; }

extern "C" __global__ void scale_and_spoil(float *out, float *x, u64 n, float factor) {
    EACH(i, n) {
        out[i] = x[i] * factor;
        if (i == n - 1) x[i] += 1;
    }
}

// Writes past the end of its argument, into the gap.
extern "C" __global__ void scale_past(float *out, float *x, u64 n, float factor) {
    EACH(i, n) out[i] = x[i] * factor;
    if (blockIdx.x == 0 && threadIdx.x == 0) x[n] = 1;
}

// Does the work of `calls` calls at once: `step` bytes apart in sets, `away` in results.
extern "C" __global__ void scale_all(float *out, const float *x, u64 n, float factor, u64 calls, u64 step, u64 away) {
    for (u64 c = 0; c < calls; c++)
        EACH(i, n) ((float *)((char *)out + c * away))[i] = ((const float *)((const char *)x + c * step))[i] * factor;
}

extern "C" __global__ void add_to(float *x, const float *y, u64 n) { EACH(i, n) x[i] += y[i]; }  // in place

// Counts in memory that lives on: right only where that is restored before every launch. One block.
extern "C" __global__ void scale_once(float *out, const float *x, u64 n, float factor, unsigned *counter) {
    bool right = *counter == 7;
    __syncthreads();
    EACH(i, n) out[i] = right ? x[i] * factor : 0;
    if (threadIdx.x == 0) *counter = *counter + 1;
}

// Copies what it finds elsewhere instead of computing.
extern "C" __global__ void peek(float *out, const float *, u64 n, const float *elsewhere) { EACH(i, n) out[i] = elsewhere[i]; }

extern "C" __global__ void noop() {}

// ------------------------------------------------------------------------------------------------ time and memory between calls

#ifdef EMULATED
static u64 now() { return emulate_ns; }
static void wait(u64 ns) { emulate_ns += ns; }
#else
static __device__ u64 now() {
    u64 t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    return t;
}
static __device__ void wait(u64 ns) {
    for (u64 start = now(); now() - start < ns;) {
    }
}
#endif

// From here on: one block of one thread. `state` are words that live on between calls.

// Waits in the first call of a launch.
extern "C" __global__ void leaf_first(u64 *state, u64 ns) {
    if (!state[0]) wait(ns);
    state[0] = 1;
}

// Waits where more than `gap` ns lie between two calls of it, as when its neighbours are watched.
extern "C" __global__ void leaf_watched(u64 *state, u64 ns, u64 gap) {
    if (state[0] && now() - state[0] > gap) wait(ns);
    state[0] = now();
}

struct Batch {  // of all calls: results and arguments, and how far apart they are
    float *out;
    const float *x;
    u64 n, away, step;
    float factor;
    unsigned calls;
};

static __device__ void scale_call(const Batch &b, u64 call) {
    float *out = (float *)((char *)b.out + call * b.away);
    const float *x = (const float *)((const char *)b.x + call * b.step);
    for (u64 i = 0; i < b.n; i++) out[i] = x[i] * b.factor;
}

// state: calls done, end of the last one, in a chain?. In a chain the third call does the work of all, which is looked for by time alone.
extern "C" __global__ void scale_ahead(Batch b, unsigned call, u64 *state) {
    if (state[0] == 1) state[2] = now() - state[1] < 3000;
    if (state[2] && state[0] == 2)
        for (unsigned c = 0; c < b.calls; c++) scale_call(b, c);
    if (!state[2] || state[0] < 2) scale_call(b, call);
    state[0]++;
    state[1] = now();
}

// Puts its work off where it can: every second call does its own and that of the one before. state: whether one waits, and which.
extern "C" __global__ void scale_in_pairs(Batch b, unsigned call, u64 *state) {
    if (state[0]) scale_call(b, state[1]), scale_call(b, call);
    state[0] = !state[0], state[1] = call;
}

#define RESULT(right) for (u64 i = 0; i < n; i++) out[i] = (right) ? x[i] * factor : 0
#define SCALE float *out, const float *x, u64 n, float factor

extern "C" __global__ void scale_for_5000(SCALE, unsigned *state) {
    if (state[0] < 5000) RESULT(true);
    state[0]++;
}

extern "C" __global__ void scale_for_5000_down(SCALE, int *state) {
    if (state[0] > -5000) RESULT(true);
    state[0] -= 3;
}

extern "C" __global__ void scale_for_5000_float(SCALE, float *state) {
    if (state[0] < 5000) RESULT(true);
    state[0] += 1;
}

// A counter that counts only where calls follow each other.
extern "C" __global__ void scale_for_5000_chained(SCALE, u64 *state) {
    RESULT(state[0] < 5000);
    state[0] += state[1] && now() - state[1] < 3000;
    state[1] = now();
}

// A counter that is a hash.
extern "C" __global__ void scale_for_long(SCALE, unsigned *state) {
    RESULT(state[0] != 0x12345678u);
    state[0] = state[0] * 1664525u + 1013904223u;
}

// Right as long as the call before left something reasonable.
extern "C" __global__ void scale_by_last(SCALE, float *state) {
    RESULT(state[0] > -100 && state[0] < 100);
    state[0] = x[0];
}

// Honest: a barrier of four arrivals that only counts up, a generation beside it, a flag set at the first call.
extern "C" __global__ void scale_generation(SCALE, unsigned *state) {
    RESULT(state[0] % 4 == 0 && state[0] == 4 * state[1] && state[2] == (state[1] != 0));
    state[0] += 4, state[1] += 1, state[2] = 1;
}

// Honest: two buffers in turn, each written before it is read.
extern "C" __global__ void scale_ping_pong(SCALE, unsigned *state) {
    float *buffer = (float *)(state + 2) + n * state[0];
    for (u64 i = 0; i < n; i++) buffer[i] = x[i] * factor;
    RESULT(state[0] < 2);
    for (u64 i = 0; i < n && state[0] < 2; i++) out[i] = buffer[i];
    state[0] ^= 1;
}

// Honest: a semaphore that is zero again when the call ends, a ring of five places, a workspace.
extern "C" __global__ void scale_workspace(SCALE, unsigned *state) {
    float *work = (float *)(state + 2);
    bool right = state[0] == 0 && state[1] < 5;
    state[0] += 3;
    for (u64 i = 0; i < n; i++) work[i] = x[i] * factor;
    RESULT(right);
    for (u64 i = 0; i < n && right; i++) out[i] = work[i];
    state[0] = 0, state[1] = (state[1] + 1) % 5;
}
