// more zeros than it may have memory
// expects: does-not-load does-not-compile
// at: call
static char zeros[((size_t)2047 << 20)];

static int attack(void) { return zeros[M + N] ? 1000 + __LINE__ : 1000 + __LINE__; }
