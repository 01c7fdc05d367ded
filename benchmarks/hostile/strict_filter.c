// a filter on itself that forbids the runner to answer
// expects: limits crash hang protocol
// at: call constructor
static int attack(void)
{
    syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0, NULL);
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
    return 0;
}
