// system calls by hand: other numbers for the same call, and the doors for 32-bit programs
// expects: return-code
// at: call constructor ifunc
#ifdef __x86_64__
static long sixty_four(long number, long a, long b)
{
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(0), "r"((long)0) : "rcx", "r11", "memory");
    return result;
}

static long thirty_two(long number, long a)
{
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(0), "d"(0) : "r8", "r9", "r10", "r11", "memory");
    return result;
}
#else
static long sixty_four(long number, long a, long b) { return syscall(number, a, b) < 0 ? -errno : 0; }
static long thirty_two(long number, long a) { (void)number, (void)a; return -1; }
#endif

static int attack(void)
{
    TRY(sixty_four(SYS_clone, SIGCHLD, 0));
    TRY(sixty_four(0x40000000 | 56, SIGCHLD, 0)); // x32
    TRY(sixty_four(0x40000000 | 57, 0, 0));
    TRY(sixty_four(0x40000000 | 101, 0, 0));
    TRY(sixty_four(SYS_unshare, CLONE_NEWNS, 0));
    TRY(sixty_four(999, 0, 0));
    TRY(thirty_two(2 /* fork */, 0));
    TRY(thirty_two(26 /* ptrace */, 0));
    TRY(thirty_two(102 /* socketcall */, 1));
    TRY(thirty_two(310 /* unshare */, CLONE_NEWUSER));
    return REFUSED;
}
