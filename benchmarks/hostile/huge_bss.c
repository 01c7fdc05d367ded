// more zeros than it may have memory
// expects: does-not-load does-not-compile
// at: call
static volatile char zeros[((size_t)2047 << 20)];

static int attack(void)
{
    zeros[M + N] = 1;
    return 1000 + __LINE__;
}
