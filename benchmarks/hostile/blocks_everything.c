// every signal blocked, and no end
// expects: hang
// at: call
static int attack(void)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    for (;;) busy(1.0);
}
