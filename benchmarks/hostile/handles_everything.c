// a handler for every signal, and a fault that it swallows
// expects: hang crash
// at: call
static void nothing(int s) { (void)s; }

static int attack(void)
{
    for (int s = 1; s < 65; s++) signal(s, nothing);
    volatile uintptr_t nowhere = 0;
    *(volatile int *)nowhere = 1;
    return 0;
}
