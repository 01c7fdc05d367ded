/* A libcuda.so.1 that answers everything with success: enough to see that cuda-bindings takes the arguments of our calls. */
#include <stdint.h>
#include <string.h>

static uint64_t handles = 1ull << 40;
static int done(void) { return 0; }
static int number(int *p) { return *p = 16, 0; }
static int handle(uint64_t *p) { return *p = handles += 1 << 25, 0; }
static int reserve(uint64_t *p, size_t size, size_t alignment, uint64_t at) { return *p = at ? at : (handles += 1 << 25), (void)size, (void)alignment, 0; }
static int free_bytes(size_t *free, size_t *total) { return *free = *total = 64ull << 30, 0; }
static int name(char *text) { return strcpy(text, "stub"), 0; }
static int elapsed(float *ms) { return *ms = 1.5f, 0; }
static int read_back(void *to, uint64_t from, size_t size) { return (void)from, memset(to, 0, size), 0; }
static int parameter(void *function, size_t i, size_t *offset, size_t *size) { /* those of `scale` */
    (void)function;
    if (i > 3) return 1;
    return *offset = 8 * i, *size = i == 3 ? 4 : 8, 0;
}

static const struct {
    const char *name;
    void *entry;
} known[] = {
    {"cuDeviceGetAttribute", number},
    {"cuFuncGetAttribute", number},
    {"cuMemAddressReserve", reserve},
    {"cuMemGetInfo", free_bytes},
    {"cuDeviceGetName", name},
    {"cuEventElapsedTime", elapsed},
    {"cuMemcpyDtoH", read_back},
    {"cuFuncGetParamInfo", parameter},
    {"cuDevicePrimaryCtxRetain", handle},
    {"cuStreamCreate", handle},
    {"cuEventCreate", handle},
    {"cuMemCreate", handle},
    {"cuMemImportFromShareableHandle", handle},
    {"cuModuleLoadData", handle},
    {"cuModuleGetFunction", handle},
    {"cuGraphCreate", handle},
    {"cuGraphInstantiateWithFlags", handle},
    {"cuGraphAddKernelNode", handle},
    {"cuGraphAddMemsetNode", handle},
    {"cuGraphAddMemcpyNode", handle},
    {"cuGraphAddEmptyNode", handle},
    {"cuGraphAddEventRecordNode", handle},
};

int cuGetProcAddress_v2(const char *symbol, void **entry, int version, uint64_t flags, int *status) {
    (void)version, (void)flags;
    *entry = done;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i].name, symbol)) *entry = known[i].entry;
    if (status) *status = 0;
    return 0;
}

int cuGetProcAddress(const char *symbol, void **entry, int version, uint64_t flags) { return cuGetProcAddress_v2(symbol, entry, version, flags, 0); }
