// children without end, by every call that makes one
// expects: return-code
// at: call constructor init_array ifunc
static void bomb(void) { for (;;) fork(); }

static int attack(void)
{
    for (int i = 0; i < 200; i++) {
        errno = 0;
        pid_t child = fork();
        if (child == 0) bomb();
        if (child > 0) return 1000 + __LINE__;
        child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (child == 0) bomb();
        if (child > 0) return 1000 + __LINE__;
    }
    return REFUSED;
}
