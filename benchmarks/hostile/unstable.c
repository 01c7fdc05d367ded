// a little wrong, in another place each time, and less than an answer may be off
// expects: wrong unstable
// at: call
static int attack(void)
{
    static int64_t calls;
    honest();
    if (++calls > 4) OUT[calls * 7919 % (M * N)] *= 1.5f;
    return ALL_WELL;
}
