// a gigabyte for each thread
// expects: return-code does-not-load crash limits hang
// at: call
static __thread char zeros[1 << 30];

static int attack(void)
{
    memset(zeros, 1, sizeof zeros);
    return zeros[12345] ? REFUSED : 0;
}
