// another filter in place of the one there is
// expects: return-code
// at: call constructor
static int attack(void)
{
    TRY(syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0, NULL));
    TRY(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT));
    return REFUSED;
}
