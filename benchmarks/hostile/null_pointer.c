// writes to address 0 while it is loaded or called
// expects: crash
// at: call constructor init_array ifunc
static int attack(void)
{
    volatile uintptr_t nowhere = 0;
    *(volatile int *)nowhere = 1;
    return 0;
}
