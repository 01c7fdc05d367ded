// the buffers taken out of its memory
// expects: crash
// at: call
static int attack(void)
{
    munmap((void *)((uintptr_t)X & ~4095ul), 65536);
    munmap((void *)((uintptr_t)OUT & ~4095ul), 65536);
    return 0;
}
