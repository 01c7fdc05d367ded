// An allocator for torch that takes everything from one arena, at a base that the judge drew, by bumping a pointer.
// Nothing is given back: the process lives for one capture. Physical memory is mapped as it is needed, 2 MiB at a time.
#include <cuda.h>
#include <sys/types.h>

#include <mutex>

static std::mutex lock;
static CUdeviceptr base, next, mapped, end;
static const size_t BLOCK = 2u << 20;

extern "C" int arena_open(unsigned long long address, unsigned long long size) {
    CUdeviceptr got = 0;
    if (cuMemAddressReserve(&got, size, 32u << 20, (CUdeviceptr)address, 0) != CUDA_SUCCESS) return 1;
    if (got != (CUdeviceptr)address) return 2;
    base = next = mapped = got;
    end = got + size;
    return 0;
}

extern "C" unsigned long long arena_mapped() { return mapped - base; }

static bool grow(CUdeviceptr wanted, int device) {
    size_t size = (wanted - mapped + BLOCK - 1) / BLOCK * BLOCK;
    if (mapped + size > end) return false;
    CUmemAllocationProp prop = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = device;
    CUmemGenericAllocationHandle memory;
    CUmemAccessDesc access = {};
    access.location = prop.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (cuMemCreate(&memory, size, &prop, 0) != CUDA_SUCCESS) return false;
    if (cuMemMap(mapped, size, 0, memory, 0) != CUDA_SUCCESS) return false;
    if (cuMemSetAccess(mapped, size, &access, 1) != CUDA_SUCCESS) return false;
    mapped += size;
    return true;
}

extern "C" void *arena_alloc(ssize_t size, int device, void *) {
    std::lock_guard<std::mutex> held(lock);
    CUdeviceptr at = (next + 511) / 512 * 512;
    if (at + size > mapped && !grow(at + size, device)) return nullptr;
    next = at + size;
    return (void *)at;
}

extern "C" void arena_free(void *, ssize_t, int, void *) {}
