// busy threads beyond `threads`
// expects: return-code
// at: call constructor signal
static void *work(void *nothing)
{
    for (;;) busy(1.0);
    return nothing;
}

static int attack(void)
{
    static char stack[65536] __attribute__((aligned(16)));
    int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD;
    for (int i = 0; i < 8; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, NULL) == 0) return 1000 + __LINE__;
    }
    TRY(clone((int (*)(void *))work, stack + sizeof stack, flags, NULL));
    TRY(clone((int (*)(void *))work, stack + sizeof stack, flags | CLONE_VFORK, NULL));
    return REFUSED;
}
