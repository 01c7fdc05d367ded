// Trusted device code of the launcher: contents, poison, comparison, and what puts the card into the same state before each launch.
// Compiled by NVRTC at start. Works on granules of 16 bytes; the last one of a span may be shorter, and a span that does not start at
// 16 bytes is worked on by bytes. Grids: x over granules, y over parts or results, z over sets.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

struct Part {     // a piece of a set: a tensor, or the gap after one
    u64 offset;   // in the set
    u64 bytes;
    u64 row;      // granules of a row, for MIX
    u32 mode;     // POISON, MIX or WHOLE
    u32 owner;    // bit of `which` in verify: 1 gap, 2 input, 4 written argument, 8 scratch
};

struct Source {   // where contents come from
    const u8 *bank;
    const Part *parts;
    u64 stride;   // from draw to draw in the bank
    u64 set_bytes;
    u64 nonce;
    u32 draws;
    u32 pattern;
    u32 verbatim; // set i is draw i % draws as it is
    u32 first;    // number of the set that z = 0 means
};

struct Result {   // one result of every call
    u64 bytes;
    u64 place;    // in what is kept of one call
    u64 columns;  // elements of a row
    double rms, worst;
    u32 kind;     // element type; EXACT and above: bit for bit
    u32 fresh;    // not an argument: poisoned before a launch
};

struct Block {    // memory that is restored before every launch
    u64 address, bytes, place;
};

enum { POISON, MIX, WHOLE };
enum { F64, F32, F16, BF16, E4M3, E5M2, I8, U8, EXACT };

#define PIECE 65536  // elements: longer rows are compared in pieces

// ------------------------------------------------------------------------------------------------ granules

struct Granule {
    u64 lo, hi;
};

__device__ __forceinline__ Granule cut(Granule v, u64 left) {  // the first `left` bytes, the others 0
    if (left >= 16) return v;
    if (left >= 8) v.hi &= (1ull << 8 * (left - 8)) - 1;
    else v.lo &= (1ull << 8 * left) - 1, v.hi = 0;
    return v;
}

__device__ __noinline__ Granule load_bytes(const u8 *p, u32 n) {
    Granule v = {0, 0};
#pragma unroll 1
    for (u32 i = 0; i < n; i++) {
        u64 byte = p[i];
        if (i < 8) v.lo |= byte << 8 * i;
        else v.hi |= byte << 8 * (i - 8);
    }
    return v;
}

__device__ __noinline__ void store_bytes(u8 *p, u32 n, Granule v) {
#pragma unroll 1
    for (u32 i = 0; i < n; i++) p[i] = (u8)((i < 8 ? v.lo : v.hi) >> 8 * (i & 7));
}

__device__ __forceinline__ Granule load(const u8 *p, u64 left) {
    if (left < 16 || (u64)p & 15) return load_bytes(p, left < 16 ? (u32)left : 16);
    ulonglong2 x = *(const ulonglong2 *)p;
    Granule v = {x.x, x.y};
    return v;
}

__device__ __forceinline__ void store(u8 *p, u64 left, Granule v) {
    if (left < 16 || (u64)p & 15) return store_bytes(p, left < 16 ? (u32)left : 16, v);
    ulonglong2 x;
    x.x = v.lo, x.y = v.hi;
    *(ulonglong2 *)p = x;
}

__device__ __forceinline__ bool same(Granule a, Granule b) { return a.lo == b.lo && a.hi == b.hi; }

__device__ __forceinline__ Granule poisoned(u32 pattern) {
    u64 word = (u64)pattern << 32 | pattern;
    Granule v = {word, word};
    return v;
}

#define EACH_GRANULE(g, bytes) \
    for (u64 g = (u64)blockIdx.x * blockDim.x + threadIdx.x; g < ((bytes) + 15) / 16; g += (u64)gridDim.x * blockDim.x)

// ------------------------------------------------------------------------------------------------ contents

__device__ __forceinline__ u64 hash64(u64 x) {  // splitmix64 finaliser
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

__device__ __forceinline__ u64 set_key(const Source &s, u32 set) { return hash64(s.nonce ^ (set + 1) * 0xd1342543de82ef95ull); }

__device__ __forceinline__ u32 mix32(u32 x) {  // murmur3 finaliser: some 270 million granules a launch are drawn with it
    x = (x ^ (x >> 16)) * 0x85ebca6bu;
    x = (x ^ (x >> 13)) * 0xc2b2ae35u;
    return x ^ (x >> 16);
}

__device__ __forceinline__ u32 below(u32 h, u32 n) { return (u32)((u64)h * n >> 32); }

// The draw that granule g of a part of a set is taken from. A row mixes two draws, never one with itself when there are more.
__device__ __forceinline__ u32 drawn(const Source &s, const Part &p, u32 set, u64 key, u32 g) {
    if (s.verbatim) return set % s.draws;
    if (p.mode == WHOLE || s.draws == 1) return (u32)(hash64(key) % s.draws);
    u64 mine = hash64(key ^ (p.offset + 1));
    u32 low = (u32)mine, high = (u32)(mine >> 32);
    u32 h = mix32(g / (u32)p.row * 0x9e3779b1u + low);
    u32 a = below(h, s.draws), b = a + 1 + below(mix32(h ^ high), s.draws - 1);
    if (!(mix32(g * 0x9e3779b1u + high) & 1)) return a;
    return b < s.draws ? b : b - s.draws;
}

__device__ __forceinline__ Granule given(const Source &s, const Part &p, u32 set, u64 key, u64 g) {
    if (p.mode == POISON) return poisoned(s.pattern);
    return load(s.bank + drawn(s, p, set, key, (u32)g) * s.stride + p.offset + 16 * g, p.bytes - 16 * g);
}

// Writes the contents of sets s.first, s.first + 1, ... to dst.
extern "C" __global__ void give(u8 *dst, Source s) {
    Part p = s.parts[blockIdx.y];
    u32 set = s.first + blockIdx.z;
    u64 key = set_key(s, set);
    u8 *to = dst + blockIdx.z * s.set_bytes + p.offset;
    EACH_GRANULE(g, p.bytes) store(to + 16 * g, p.bytes - 16 * g, given(s, p, set, key, g));
}

// counts[set] += granules of the parts of `which` that are not what `give` wrote.
extern "C" __global__ void verify(const u8 *sets, Source s, u32 which, u32 *counts) {
    Part p = s.parts[blockIdx.y];
    if (!(p.owner & which)) return;
    u32 set = s.first + blockIdx.z, n = 0;
    u64 key = set_key(s, set);
    const u8 *from = sets + set * s.set_bytes + p.offset;
    EACH_GRANULE(g, p.bytes) {
        u64 left = p.bytes - 16 * g;
        n += !same(load(from + 16 * g, left), cut(given(s, p, set, key, g), left));
    }
    if (n) atomicAdd(counts + set, n);
}

extern "C" __global__ void restore(const Block *blocks, u32 count, const u8 *store_) {
    for (u32 i = blockIdx.y; i < count; i += gridDim.y) {
        Block b = blocks[i];
        EACH_GRANULE(g, b.bytes) store((u8 *)b.address + 16 * g, b.bytes - 16 * g, load(store_ + b.place + 16 * g, b.bytes - 16 * g));
    }
}

// ------------------------------------------------------------------------------------------------ results

// addresses[call * results + r] is where result r of a call lies; `first` is the call that z = 0 means.
extern "C" __global__ void poison(const u64 *addresses, const Result *results, u32 first, u32 pattern) {
    Result r = results[blockIdx.y];
    u8 *p = (u8 *)addresses[(first + blockIdx.z) * gridDim.y + blockIdx.y];
    if (!r.fresh) return;
    EACH_GRANULE(g, r.bytes) store(p + 16 * g, r.bytes - 16 * g, poisoned(pattern));
}

// counts[call] += granules of fresh results that hold the poison (want 1) or no longer do (want 0). A shorter last granule counts with
// the bytes before it; a result of fewer than four bytes may by chance be the poison and is not counted as unwritten.
extern "C" __global__ void untouched(const u64 *addresses, const Result *results, u32 first, u32 pattern, u32 want, u32 *counts) {
    Result r = results[blockIdx.y];
    u32 call = first + blockIdx.z, n = 0;
    const u8 *p = (const u8 *)addresses[call * gridDim.y + blockIdx.y];
    if (!r.fresh || (want && r.bytes < 4)) return;
    EACH_GRANULE(g, r.bytes) {
        u64 at = 16 * g, left = r.bytes - at, back = left < 16 && at ? (16 - left) & ~3ull : 0;
        Granule v = load(p + at - back, left + back);
        n += same(v, cut(poisoned(pattern), left + back)) == (want != 0);
    }
    if (n) atomicAdd(counts + call, n);
}

// Copies the results of calls to kept + (call - first) * stride.
extern "C" __global__ void keep(const u64 *addresses, const Result *results, u32 first, u8 *kept, u64 stride) {
    Result r = results[blockIdx.y];
    const u8 *p = (const u8 *)addresses[(first + blockIdx.z) * gridDim.y + blockIdx.y];
    u8 *to = kept + blockIdx.z * stride + r.place;
    EACH_GRANULE(g, r.bytes) store(to + 16 * g, r.bytes - 16 * g, load(p + 16 * g, r.bytes - 16 * g));
}

// counts[call * results + r] += granules that differ from what was kept.
extern "C" __global__ void differ(const u64 *addresses, const Result *results, const u8 *kept, u64 stride, u32 *counts) {
    Result r = results[blockIdx.y];
    u32 which = blockIdx.z * gridDim.y + blockIdx.y, n = 0;
    const u8 *p = (const u8 *)addresses[which], *q = kept + blockIdx.z * stride + r.place;
    EACH_GRANULE(g, r.bytes) n += !same(load(p + 16 * g, r.bytes - 16 * g), load(q + 16 * g, r.bytes - 16 * g));
    if (n) atomicAdd(counts + which, n);
}

__device__ __forceinline__ double small_float(u32 bits, u32 exponents, u32 mantissas, bool infinities) {
    u32 m = bits & ((1u << mantissas) - 1), top = (1u << exponents) - 1, e = (bits >> mantissas) & top;
    int bias = (int)(top >> 1);
    double infinity = ldexp(1.0, 2000), x;
    if (infinities && e == top) x = m ? infinity - infinity : infinity;
    else if (!infinities && e == top && m == (1u << mantissas) - 1) x = infinity - infinity;
    else if (e) x = ldexp(1.0 + ldexp((double)m, -(int)mantissas), (int)e - bias);
    else x = ldexp((double)m, 1 - bias - (int)mantissas);
    return bits >> (exponents + mantissas) & 1 ? -x : x;
}

__device__ __forceinline__ double number(const u8 *p, u64 i, u32 kind) {
    switch (kind) {
        case F64: return ((const double *)p)[i];
        case F32: return ((const float *)p)[i];
        case F16: return small_float(((const unsigned short *)p)[i], 5, 10, true);
        case BF16: return small_float(((const unsigned short *)p)[i], 8, 7, true);
        case E4M3: return small_float(p[i], 4, 3, false);
        case E5M2: return small_float(p[i], 5, 2, true);
        case I8: return (signed char)p[i];
        default: return p[i];
    }
}

struct Sums {   // over a piece of a row: squares of the difference, of either side; the largest difference
    double off, a, b, top;
};

__device__ __forceinline__ void add(Sums &s, double x, double y) {
    double d = x - y, infinity = ldexp(1.0, 2000);
    if (x != x && y != y) return;            // both are not numbers
    if (x == y) d = 0;                       // infinities too
    if (d != d || fabs(d) == infinity) {     // one of them is not finite
        s.top = infinity;
        return;
    }
    s.off += d * d;
    if (fabs(x) != infinity) s.a += x * x, s.b += y * y;
    if (fabs(d) > s.top) s.top = fabs(d);
}

__device__ __forceinline__ Sums over_block(Sums mine) {  // valid in thread 0
    __shared__ Sums all[256];
    __syncthreads();
    all[threadIdx.x] = mine;
    __syncthreads();
    for (u32 half = blockDim.x / 2; half; half >>= 1) {
        if (threadIdx.x < half) {
            Sums &s = all[threadIdx.x], o = all[threadIdx.x + half];
            s.off += o.off, s.a += o.a, s.b += o.b;
            if (o.top > s.top) s.top = o.top;
        }
        __syncthreads();
    }
    return all[0];
}

// Beyond the tolerance? Measured by the smaller of the two sides; sums that overflowed are beyond.
__device__ __forceinline__ bool beyond(const Sums &s, double n, const Result &r) {
    if (r.kind == I8 || r.kind == U8) return s.top > 1;
    double size = sqrt((s.a < s.b ? s.a : s.b) / n), off = sqrt(s.off / n);
    bool finite = s.a - s.a == 0 && s.b - s.b == 0;
    return !(finite && off <= r.rms * size && s.top <= r.worst * size);
}

__device__ __forceinline__ u64 element(u32 kind) { return kind == F64 ? 8 : kind == F32 ? 4 : kind <= BF16 ? 2 : 1; }

// odd[call] += rows of differing results that are further from what was kept than the tolerance.
extern "C" __global__ void rows(const u64 *addresses, const Result *results, const u8 *kept, u64 stride, const u32 *counts, u32 *odd) {
    Result r = results[blockIdx.y];
    u32 which = blockIdx.z * gridDim.y + blockIdx.y, bad = 0;
    if (!counts[which]) return;
    if (r.kind >= EXACT || !(r.worst > 0)) {
        if (blockIdx.x == 0 && threadIdx.x == 0) atomicAdd(odd + blockIdx.z, 1u);
        return;
    }
    const u8 *p = (const u8 *)addresses[which], *q = kept + blockIdx.z * stride + r.place;
    u64 elements = r.bytes / element(r.kind), each = (r.columns + PIECE - 1) / PIECE, lines = (elements + r.columns - 1) / r.columns;
    for (u64 piece = blockIdx.x; piece < lines * each; piece += gridDim.x) {
        u64 line = piece / each, begin = line * r.columns + piece % each * PIECE;
        u64 end = begin + PIECE < (line + 1) * r.columns ? begin + PIECE : (line + 1) * r.columns;
        if (end > elements) end = elements;
        Sums mine = {0, 0, 0, 0};
        for (u64 i = begin + threadIdx.x; i < end; i += blockDim.x) add(mine, number(p, i, r.kind), number(q, i, r.kind));
        mine = over_block(mine);
        if (threadIdx.x == 0 && begin < end) bad += beyond(mine, (double)(end - begin), r);
    }
    if (bad) atomicAdd(odd + blockIdx.z, bad);
}

// ------------------------------------------------------------------------------------------------ the state of the card

// Reads a buffer larger than the L2, so that nothing of before is left in it.
extern "C" __global__ void wash(const ulonglong2 *src, u64 granules, u64 *sink) {
    u64 x = 0;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < granules; i += (u64)gridDim.x * blockDim.x) {
        ulonglong2 v = src[i];
        x ^= v.x ^ v.y;
    }
    if (x == 0x0123456789abcdefull) *sink = x;
}

extern "C" __global__ void fill(ulonglong2 *dst, u64 granules, u64 value) {
    ulonglong2 v;
    v.x = v.y = value;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < granules; i += (u64)gridDim.x * blockDim.x) dst[i] = v;
}

extern "C" __global__ void copy(ulonglong2 *dst, const ulonglong2 *src, u64 granules) {
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < granules; i += (u64)gridDim.x * blockDim.x) dst[i] = src[i];
}

#define REGISTERS 246  // a thread; with 256 threads nearly all that a multiprocessor has

// Overwrites the shared memory and the registers of the multiprocessor it runs on, so that no address and no value of ours is left there
// for the next kernel to find. `zero` holds REGISTERS zeros; the order of use keeps all of them in registers at once.
extern "C" __global__ void __launch_bounds__(256, 1) scrub(u32 words, const volatile u32 *zero, u32 *sink) {
    extern __shared__ volatile u32 shared_words[];
    u32 r[REGISTERS], x = 1;
    for (u32 i = threadIdx.x; i < words; i += blockDim.x) shared_words[i] = 0xa5a5a5a5u;
#pragma unroll
    for (int i = 0; i < REGISTERS; i++) r[i] = zero[i];
    __syncthreads();
#pragma unroll
    for (int i = REGISTERS - 1; i >= 0; i--) x = x * 3 + r[i];
    if (x == 0) *sink = x;
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

extern "C" __global__ void nothing() {}
