// recursion without end, with a larger stack
// expects: crash limits
// at: call constructor
static int deeper(volatile char *from)
{
    volatile char room[4096];
    room[0] = from[0];
    return deeper(room) + room[1];
}

static int attack(void)
{
    struct rlimit more;
    char here = 0;
    getrlimit(RLIMIT_STACK, &more);
    more.rlim_cur = more.rlim_max;
    setrlimit(RLIMIT_STACK, &more);
    return deeper(&here);
}
