// inputs made writable, by protection, by advice, through /proc
// expects: return-code
// at: call
static int attack(void)
{
    char *page = (char *)((uintptr_t)X & ~4095ul);
    TRY(mprotect(page, 4096, PROT_READ | PROT_WRITE));
    TRY(madvise(page, 4096, MADV_REMOVE));
    TRY(syscall(SYS_mremap, page, 0, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, 0));
    int mem = open("/proc/self/mem", O_RDWR);
    if (mem >= 0) TRY(pwrite(mem, "x", 1, (off_t)(uintptr_t)page));
    return REFUSED;
}
