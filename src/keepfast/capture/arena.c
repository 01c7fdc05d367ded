/* An allocator for torch that takes everything from one arena, at a base that the judge drew.

   Blocks are 512-aligned and found by first fit in coalesced free ranges. What is freed becomes free at the next arena_epoch(),
   that is between two calls; what lived before arena_mark() and is freed after it, at the next arena_mark(): a plan may need it.
   Physical memory is mapped in chunks as it is needed, also while a stream is being captured.

   The few driver calls are looked up in libcuda.so.1, so that this builds where there is no CUDA. With -DARENA_FAKE host memory
   stands for the card's: tests of the bookkeeping need no GPU. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

enum { ALIGN = 512 };
static const uint64_t PAGE = 2u << 20;    /* granularity of physical memory */
static const uint64_t CHUNK = 32u << 20;  /* mapped at once, where that much is left */
static const uint64_t RESERVE = 32u << 20; /* granularity at which the driver honours an address */

enum state { LIVE, FREED, HELD }; /* HELD: freed, lived before the mark */

struct range {
    uint64_t start, end;
};

struct block {
    uint64_t start, end;
    int state, born; /* born: since the mark */
};

struct list {
    char *at;
    size_t count, room, width;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t base, mapped, end, cap, refused;
static struct list blocks = {.width = sizeof(struct block)};   /* by address */
static struct list spare = {.width = sizeof(struct range)};    /* free and mapped, by address, coalesced */
static struct list touched = {.width = sizeof(struct range)};  /* since the mark, by address, coalesced */

/* ------------------------------------------------------------------------------------------------ the driver */

#ifdef ARENA_FAKE
#include <sys/mman.h>

static uint64_t fake_limit = UINT64_MAX; /* bytes of physical memory that the card has */

void arena_fake_limit(uint64_t bytes) { fake_limit = bytes; }

static int reserve(uint64_t address, uint64_t size) {
    void *got = mmap((void *)address, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    return got == MAP_FAILED ? 2 : got == (void *)address ? 0 : 2;
}

static int map(uint64_t at, uint64_t size) {
    if (at + size - base > fake_limit) return 0;
    return mprotect((void *)at, size, PROT_READ | PROT_WRITE) == 0;
}

#else

struct location {
    int type, id;
};

struct properties { /* CUmemAllocationProp */
    int type, handles;
    struct location location;
    void *unused;
    unsigned char flags[8];
};

struct access { /* CUmemAccessDesc */
    struct location location;
    int flags;
};

enum { PINNED = 1, DEVICE = 1, READ_WRITE = 3, RELAXED = 2 };

static struct {
    int (*reserve)(uint64_t *, size_t, size_t, uint64_t, unsigned long long);
    int (*unreserve)(uint64_t, size_t);
    int (*create)(uint64_t *, size_t, const struct properties *, unsigned long long);
    int (*release)(uint64_t);
    int (*map)(uint64_t, size_t, size_t, uint64_t, unsigned long long);
    int (*unmap)(uint64_t, size_t);
    int (*access)(uint64_t, size_t, const struct access *, size_t);
    int (*mode)(int *);
    int (*device)(int *);
} cu;

static struct location here;

static int find(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!library) return 0;
    struct {
        const char *name;
        void *slot;
    } wanted[] = {
        {"cuMemAddressReserve", &cu.reserve}, {"cuMemAddressFree", &cu.unreserve}, {"cuMemCreate", &cu.create},
        {"cuMemRelease", &cu.release},        {"cuMemMap", &cu.map},               {"cuMemUnmap", &cu.unmap},
        {"cuMemSetAccess", &cu.access},       {"cuThreadExchangeStreamCaptureMode", &cu.mode},
        {"cuCtxGetDevice", &cu.device},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        void *found = dlsym(library, wanted[i].name);
        if (!found) return 0;
        memcpy(wanted[i].slot, &found, sizeof found);
    }
    return 1;
}

static int reserve(uint64_t address, uint64_t size) {
    uint64_t got = 0;
    if (!find()) return 3;
    here.type = DEVICE;
    if (cu.device(&here.id) != 0) return 1;
    if (cu.reserve(&got, size, RESERVE, address, 0) != 0) return 1;
    if (got == address) return 0;
    cu.unreserve(got, size);
    return 2;
}

static int map_physical(uint64_t at, uint64_t size) {
    struct properties wanted = {.type = PINNED, .location = here};
    struct access access = {here, READ_WRITE};
    uint64_t memory = 0;
    if (cu.create(&memory, size, &wanted, 0) != 0) return 0;
    int done = cu.map(at, size, 0, memory, 0) == 0;
    if (done && cu.access(at, size, &access, 1) != 0) cu.unmap(at, size), done = 0;
    cu.release(memory); /* a mapping keeps it */
    return done;
}

/* None of these calls is work on a stream, so growing is legal while this thread captures one. */
static int map(uint64_t at, uint64_t size) {
    int mode = RELAXED;
    int exchanged = cu.mode(&mode) == 0;
    int done = map_physical(at, size);
    if (exchanged) cu.mode(&mode);
    return done;
}
#endif

/* ------------------------------------------------------------------------------------------------ sorted lists */

static uint64_t up(uint64_t n, uint64_t step) { return (n + step - 1) / step * step; }

static void *entry(const struct list *l, size_t i) { return l->at + i * l->width; }

/* Index of the first entry that starts at `address` or after it; every entry begins with its start. */
static size_t place(const struct list *l, uint64_t address) {
    size_t low = 0, high = l->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (*(uint64_t *)entry(l, middle) < address) low = middle + 1;
        else high = middle;
    }
    return low;
}

static void *insert(struct list *l, size_t i) {
    if (l->count == l->room) {
        l->room = l->room ? 2 * l->room : 256;
        l->at = realloc(l->at, l->room * l->width);
        if (!l->at) abort();
    }
    memmove(l->at + (i + 1) * l->width, l->at + i * l->width, (l->count - i) * l->width);
    l->count++;
    return entry(l, i);
}

static void erase(struct list *l, size_t i, size_t count) {
    memmove(l->at + i * l->width, l->at + (i + count) * l->width, (l->count - i - count) * l->width);
    l->count -= count;
}

/* Adds [start, end) to a list of ranges; those it meets or touches become one with it. */
static void add(struct list *l, uint64_t start, uint64_t stop) {
    size_t first = place(l, start), last;
    if (first > 0 && ((struct range *)entry(l, first - 1))->end >= start) first--;
    for (last = first; last < l->count; last++) {
        struct range *r = entry(l, last);
        if (r->start > stop) break;
        if (r->start < start) start = r->start;
        if (r->end > stop) stop = r->end;
    }
    if (last == first) insert(l, first);
    else erase(l, first + 1, last - first - 1);
    *(struct range *)entry(l, first) = (struct range){start, stop};
}

/* Takes [start, end), which lies in entry `i`, out of a list of ranges. */
static void take(struct list *l, size_t i, uint64_t start, uint64_t stop) {
    struct range whole = *(struct range *)entry(l, i);
    if (whole.start == start && whole.end == stop) {
        erase(l, i, 1);
    } else if (whole.start == start) {
        ((struct range *)entry(l, i))->start = stop;
    } else {
        ((struct range *)entry(l, i))->end = start;
        if (whole.end != stop) *(struct range *)insert(l, i + 1) = (struct range){stop, whole.end};
    }
}

/* ------------------------------------------------------------------------------------------------ blocks */

/* Maps memory so that [.., wanted) is there. A large chunk where it fits under the cap, else what is needed. */
static int grow(uint64_t wanted) {
    uint64_t least = up(wanted - mapped, PAGE), size = least < CHUNK ? CHUNK : least;
    uint64_t left = (cap < end - base ? cap : end - base) / PAGE * PAGE - (mapped - base);
    if (least > left) return 0;
    if (size > left) size = left;
    if (!map(mapped, size)) {
        if (size == least || !map(mapped, least)) return 0;
        size = least;
    }
    add(&spare, mapped, mapped + size);
    mapped += size;
    return 1;
}

/* Index of the first free range that holds `size` bytes at a multiple of `align`; spare.count when none does. */
static size_t fit(uint64_t size, uint64_t align) {
    for (size_t i = 0; i < spare.count; i++) {
        struct range *r = entry(&spare, i);
        if (up(r->start, align) + size <= r->end) return i;
    }
    return spare.count;
}

static uint64_t tail(void) {
    if (!spare.count) return mapped;
    struct range *last = entry(&spare, spare.count - 1);
    return last->end == mapped ? last->start : mapped;
}

static uint64_t allocate(uint64_t size, uint64_t align) {
    if (!base || size > end - base) return 0;
    size = up(size ? size : 1, align);
    size_t i = fit(size, align);
    if (i == spare.count) {
        uint64_t start = up(tail(), align);
        if (start + size > end || !grow(start + size)) return 0;
        i = fit(size, align);
    }
    uint64_t at = up(((struct range *)entry(&spare, i))->start, align);
    take(&spare, i, at, at + size);
    add(&touched, at, at + size);
    *(struct block *)insert(&blocks, place(&blocks, at)) = (struct block){at, at + size, LIVE, 1};
    return at;
}

static uint64_t locked_allocate(uint64_t size, uint64_t align) {
    pthread_mutex_lock(&lock);
    uint64_t at = allocate(size, align);
    if (!at && !refused) refused = size ? size : 1;
    pthread_mutex_unlock(&lock);
    return at;
}

/* Gives back the blocks in `state`. */
static void sweep(int state) {
    size_t kept = 0;
    for (size_t i = 0; i < blocks.count; i++) {
        struct block b = *(struct block *)entry(&blocks, i);
        if (b.state == state) add(&spare, b.start, b.end);
        else *(struct block *)entry(&blocks, kept++) = b;
    }
    blocks.count = kept;
}

/* ------------------------------------------------------------------------------------------------ what others call */

/* Reserves `size` bytes of addresses at `address`, a multiple of 32 MiB; at most `max_bytes` of them are ever mapped. Once, with a
   context current. 0: done; 1: the driver refused; 2: the address is taken; 3: no driver; 4: not such numbers, or called before. */
int arena_open(unsigned long long address, unsigned long long size, unsigned long long max_bytes) {
    if (base || !address || address % RESERVE || !size || size % RESERVE) return 4;
    int code = reserve(address, size);
    if (code) return code;
    base = mapped = address;
    end = address + size;
    cap = max_bytes;
    return 0;
}

/* torch's two functions. NULL when there is no memory: torch does not notice, so look at arena_refused() after each call. */
void *arena_alloc(ssize_t size, int device, void *stream) {
    (void)device, (void)stream;
    return (void *)locked_allocate(size < 0 ? UINT64_MAX : (uint64_t)size, ALIGN);
}

void arena_free(void *address, ssize_t size, int device, void *stream) {
    (void)size, (void)device, (void)stream;
    pthread_mutex_lock(&lock);
    size_t i = place(&blocks, (uint64_t)address);
    struct block *b = i < blocks.count ? entry(&blocks, i) : NULL;
    if (b && b->start == (uint64_t)address && b->state == LIVE) b->state = b->born ? FREED : HELD;
    pthread_mutex_unlock(&lock);
}

/* A block of whole pages: address and size are multiples of 2 MiB. 0 when there is no memory. */
unsigned long long arena_block(unsigned long long size) { return locked_allocate(size, PAGE); }

/* Maps memory ahead of need, so that `size` bytes at the end of the arena are free. 0 when that is more than there is. */
int arena_reserve(unsigned long long size) {
    pthread_mutex_lock(&lock);
    uint64_t wanted = tail() + size;
    int done = base && size <= end - base && (wanted <= mapped || grow(wanted));
    pthread_mutex_unlock(&lock);
    return done;
}

/* A call has ended: what was freed during it may be used again. */
void arena_epoch(void) {
    pthread_mutex_lock(&lock);
    sweep(FREED);
    pthread_mutex_unlock(&lock);
}

/* From here on it is recorded what is touched: all that lives now, and all that is allocated later. */
void arena_mark(void) {
    pthread_mutex_lock(&lock);
    sweep(FREED);
    sweep(HELD);
    touched.count = 0;
    for (size_t i = 0; i < blocks.count; i++) {
        struct block *b = entry(&blocks, i);
        b->born = 0;
        add(&touched, b->start, b->end);
    }
    pthread_mutex_unlock(&lock);
}

/* Live blocks by address, three words each: address, size, 1 if born since the mark. At most `room` are written; how many there are. */
size_t arena_live(unsigned long long *out, size_t room) {
    pthread_mutex_lock(&lock);
    size_t count = 0;
    for (size_t i = 0; i < blocks.count; i++) {
        struct block *b = entry(&blocks, i);
        if (b->state != LIVE) continue;
        if (count < room) out[3 * count] = b->start, out[3 * count + 1] = b->end - b->start, out[3 * count + 2] = (uint64_t)b->born;
        count++;
    }
    pthread_mutex_unlock(&lock);
    return count;
}

/* What was touched since the mark, by address, coalesced, two words each: address, size. As above. */
size_t arena_touched(unsigned long long *out, size_t room) {
    pthread_mutex_lock(&lock);
    size_t count = touched.count;
    for (size_t i = 0; i < count && i < room; i++) {
        struct range *r = entry(&touched, i);
        out[2 * i] = r->start, out[2 * i + 1] = r->end - r->start;
    }
    pthread_mutex_unlock(&lock);
    return count;
}

unsigned long long arena_mapped(void) { return mapped - base; }

/* Bytes of the first request that could not be met since this was last called; 0: all were. */
unsigned long long arena_refused(void) {
    pthread_mutex_lock(&lock);
    uint64_t size = refused;
    refused = 0;
    pthread_mutex_unlock(&lock);
    return size;
}
