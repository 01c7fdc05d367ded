// another user, more rights, and a life after the judge's death
// expects: return-code
// at: call constructor
static int attack(void)
{
    TRY(setuid(0));
    TRY(setgid(0));
    TRY(setresuid(0, 0, 0));
    TRY(setgroups(0, NULL));
    TRY(prctl(PR_SET_PDEATHSIG, 0));
    TRY(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 21, 0, 0));
    TRY(prctl(PR_SET_SECUREBITS, 0));
    TRY(prctl(PR_SET_MM, PR_SET_MM_BRK, 0, 0, 0));
    if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1 || prctl(PR_GET_SECCOMP) != 2) return 1000 + __LINE__;
    return REFUSED;
}
