// Trusted device code of the launcher: contents, poison, comparison, washing the L2, scrubbing shared memory, the sentinel.
// Compiled by NVRTC at start. Every kernel works on 16-byte granules.

typedef unsigned long long u64;

__device__ __forceinline__ u64 hash64(u64 x) {  // splitmix64 finaliser
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

// Row r of dst takes each granule from one of two rows of the pool, which the nonce draws for it.
extern "C" __global__ void refresh(uint4 *dst, const uint4 *pool, u64 rows, unsigned width, unsigned pool_rows, u64 nonce) {
    u64 total = rows * width, step = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += step) {
        u64 row = i / width;
        unsigned column = (unsigned)(i - row * width);
        u64 h = hash64(nonce ^ row * 0xd1342543de82ef95ull);
        unsigned a = (unsigned)h % pool_rows, b = (unsigned)(h >> 32) % pool_rows;
        unsigned pick = (unsigned)(hash64(nonce + i) & 1) ? a : b;
        dst[i] = pool[(u64)pick * width + column];
    }
}

extern "C" __global__ void poison(uint4 *dst, u64 granules, unsigned pattern) {
    uint4 value = make_uint4(pattern, pattern, pattern, pattern);
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < granules; i += (u64)gridDim.x * blockDim.x) dst[i] = value;
}

// counts[0] += granules that differ, counts[1] += granules of a that still hold the poison.
extern "C" __global__ void compare(const uint4 *a, const uint4 *b, u64 granules, unsigned pattern, u64 *counts) {
    u64 differ = 0, left = 0;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < granules; i += (u64)gridDim.x * blockDim.x) {
        uint4 x = a[i], y = b[i];
        differ += x.x != y.x || x.y != y.y || x.z != y.z || x.w != y.w;
        left += x.x == pattern && x.y == pattern && x.z == pattern && x.w == pattern;
    }
    if (differ) atomicAdd(counts, differ);
    if (left) atomicAdd(counts + 1, left);
}

extern "C" __global__ void copy(uint4 *dst, const uint4 *src, u64 granules) {
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < granules; i += (u64)gridDim.x * blockDim.x) dst[i] = src[i];
}

// Reads a buffer larger than the L2, so that nothing of before is left in it.
extern "C" __global__ void wash(const uint4 *src, u64 granules, unsigned *sink) {
    unsigned x = 0;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < granules; i += (u64)gridDim.x * blockDim.x) {
        uint4 v = src[i];
        x ^= v.x ^ v.y ^ v.z ^ v.w;
    }
    if (x == 0x12345678u) *sink = x;
}

extern "C" __global__ void scrub(unsigned words) {  // overwrites the shared memory of the multiprocessor it runs on
    extern __shared__ volatile unsigned shared[];
    for (unsigned i = threadIdx.x; i < words; i += blockDim.x) shared[i] = 0xa5a5a5a5u;
}

extern "C" __global__ void sentinel(u64 rounds, u64 *sink) {  // a fixed piece of arithmetic
    u64 x = threadIdx.x + 1;
    for (u64 i = 0; i < rounds; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    if (x == 0) *sink = x;
}
