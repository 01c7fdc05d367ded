// its own limits raised, and those of others lowered
// expects: return-code
// at: call constructor
static int attack(void)
{
    const int which[] = {RLIMIT_AS, RLIMIT_NPROC, RLIMIT_CPU, RLIMIT_FSIZE, RLIMIT_NOFILE, RLIMIT_CORE, RLIMIT_MEMLOCK, RLIMIT_MSGQUEUE, RLIMIT_STACK};
    struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY}, none = {0, 0};
    for (size_t i = 0; i < sizeof which / sizeof *which; i++) {
        TRY(setrlimit(which[i], &all));
        TRY(prlimit(JUDGE, which[i], &none, NULL));
    }
    return REFUSED;
}
