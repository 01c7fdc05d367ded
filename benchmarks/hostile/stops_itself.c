// stops, so that the judge takes it for stopped
// expects: return-code protocol hang
// at: call constructor
static int attack(void)
{
    raise(SIGSTOP);
    raise(SIGTSTP);
    raise(SIGTTIN);
    raise(SIGTTOU);
    kill(getpid(), SIGSTOP);
    syscall(SYS_tgkill, getpid(), getpid(), SIGSTOP);
    return REFUSED;
}
