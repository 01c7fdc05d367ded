// a child that borrows the memory, and one by clone3
// expects: return-code
// at: call constructor
static int attack(void)
{
    static uint64_t how[11] = {0, 0, 0, 0, SIGCHLD};
    volatile pid_t child = vfork();
    if (child == 0) for (;;) pause();
    if (child > 0) return 1000 + __LINE__;
    child = (pid_t)syscall(435 /* clone3 */, how, sizeof how);
    if (child == 0) for (;;) pause();
    if (child > 0) return 1000 + __LINE__;
    return REFUSED;
}
