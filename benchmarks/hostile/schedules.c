// a better place in the queue for the processor
// expects: return-code
// at: call constructor
static int attack(void)
{
    struct sched_param best = {1}, none = {0};
    TRY(sched_setscheduler(0, SCHED_FIFO, &best));
    TRY(sched_setscheduler(0, SCHED_BATCH, &none));
    TRY(sched_setparam(0, &none));
    TRY(syscall(SYS_sched_setattr, 0, NULL, 0));
    TRY(setpriority(PRIO_PROCESS, 0, -20));
    TRY(setpriority(PRIO_PROCESS, 0, 19));
    errno = 0;
    if (nice(-5) != -1 || errno == 0) return 1000 + __LINE__;
    TRY(syscall(SYS_ioprio_set, 1, 0, 0x4000));
    return REFUSED;
}
