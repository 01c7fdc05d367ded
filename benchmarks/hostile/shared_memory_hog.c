// all memory there is, by mmap, private and shared
// expects: return-code limits crash hang
// at: call constructor
static int attack(void)
{
    const size_t piece = 64 << 20;
    for (int64_t taken = 0; taken < (int64_t)8 << 30; taken += piece) {
        int kind = taken / piece % 2 ? MAP_PRIVATE : MAP_SHARED;
        if (mmap(NULL, piece, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS | MAP_POPULATE, -1, 0) == MAP_FAILED) return REFUSED;
    }
    return 1000 + __LINE__;
}
