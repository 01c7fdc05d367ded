// onto the judge's core
// expects: return-code
// at: call constructor
static int attack(void)
{
    cpu_set_t all;
    memset(&all, 0xff, sizeof all);
    TRY(sched_setaffinity(0, sizeof all, &all));
    TRY(sched_setaffinity(JUDGE, sizeof all, &all));
    TRY(syscall(SYS_mbind, OUT, 4096, 0, NULL, 0, 0));
    TRY(syscall(SYS_set_mempolicy, 0, NULL, 0));
    TRY(syscall(SYS_migrate_pages, 0, 0, NULL, NULL));
    cpu_set_t mine;
    if (sched_getaffinity(0, sizeof mine, &mine) == 0 && CPU_COUNT(&mine) > 1) return 1000 + __LINE__;
    return REFUSED;
}
