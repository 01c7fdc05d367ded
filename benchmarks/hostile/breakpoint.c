// a breakpoint without a debugger
// expects: crash
// at: call
static int attack(void)
{
#ifdef __x86_64__
    __asm__ volatile("int3");
#else
    __asm__ volatile("brk #0");
#endif
    return 0;
}
