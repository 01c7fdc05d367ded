// a call that waits for ever
// expects: hang
// at: call
static int attack(void)
{
    sigset_t none;
    sigemptyset(&none);
    for (;;) sigsuspend(&none);
}
