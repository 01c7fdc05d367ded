// instructions that no program may use
// expects: crash
// at: call constructor
static int attack(void)
{
#ifdef __x86_64__
    static int n;
    if (n++ % 2 == 0) __asm__ volatile("hlt");
    __asm__ volatile("ud2");
#else
    __builtin_trap();
#endif
    return 0;
}
