// abort, with a core as large as it may be
// expects: crash
// at: call constructor
static int attack(void)
{
    struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
    if (setrlimit(RLIMIT_CORE, &all) == 0) return 1000 + __LINE__;
    prctl(PR_SET_DUMPABLE, 1);
    abort();
}
