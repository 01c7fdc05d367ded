// switches of the kernel, through /proc and /sys
// expects: return-code
// at: call
static int attack(void)
{
    const char *names[] = {"/proc/self/oom_score_adj", "/proc/self/comm", "/proc/self/mem", "/proc/self/uid_map", "/proc/self/setgroups", "/proc/sysrq-trigger",
                           "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sys/vm/drop_caches", "/proc/self/timerslack_ns",
                           "/sys/devices/system/cpu/cpu0/online", "/sys/fs/cgroup/cgroup.procs", "/sys/power/state", "/proc/self/clear_refs"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) TRY(open(names[i], O_WRONLY));
    return REFUSED;
}
