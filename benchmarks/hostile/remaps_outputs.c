// memory of its own in place of the outputs
// expects: wrong
// at: call
static int attack(void)
{
    char *from = (char *)((uintptr_t)OUT & ~4095ul);
    size_t size = (size_t)(M * N) * 4 + 8192;
    if (mmap(from, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) return REFUSED;
    return 0;
}
