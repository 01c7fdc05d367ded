// a daemon in a session of its own, that outlives the call
// expects: return-code
// at: call constructor signal
static int attack(void)
{
    TRY(setsid());
    TRY(setpgid(0, 0));
    TRY(daemon(0, 0));
    pid_t child = fork();
    if (child > 0) return 1000 + __LINE__;
    if (child == 0) {
        setsid();
        for (int s = 1; s < 65; s++) signal(s, SIG_IGN);
        if (fork() == 0) for (;;) pause();
        for (;;) busy(1.0);
    }
    return REFUSED;
}
