// calls with a history: bpf, perf, io_uring, userfaultfd, keys
// expects: return-code
// at: call constructor ifunc
static int attack(void)
{
    static char zeros[256];
    TRY(syscall(SYS_bpf, 0, zeros, sizeof zeros));
    TRY(syscall(SYS_perf_event_open, zeros, 0, -1, -1, 0));
    TRY(syscall(425 /* io_uring_setup */, 4, zeros));
    TRY(syscall(426, 3, 0, 0, 0, 0, 0));
    TRY(syscall(427, 3, 0, 0, 0));
    TRY(syscall(SYS_userfaultfd, 0));
    TRY(syscall(SYS_add_key, "user", "x", "y", 1, -3));
    TRY(syscall(SYS_request_key, "user", "x", NULL, -3));
    TRY(syscall(SYS_keyctl, 0, -3, 1));
    TRY(syscall(SYS_fanotify_init, 0, 0));
    TRY(syscall(SYS_quotactl, 0, NULL, 0, NULL));
    return REFUSED;
}
