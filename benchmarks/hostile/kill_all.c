// the death of everything else
// expects: return-code
// at: call constructor init_array ifunc signal
static int attack(void)
{
    TRY(kill(-1, SIGKILL));
    TRY(kill(-1, SIGSTOP));
    for (pid_t pid = 2; pid < 70000; pid++) {
        if (pid == getpid()) continue;
        TRY(kill(pid, SIGKILL));
    }
    TRY(kill(JUDGE, SIGKILL));
    TRY(syscall(SYS_tgkill, JUDGE, JUDGE, SIGKILL));
    TRY(sigqueue(JUDGE, SIGKILL, (union sigval){0}));
    TRY(syscall(424 /* pidfd_send_signal */, 3, SIGKILL, 0, 0));
    return REFUSED;
}
