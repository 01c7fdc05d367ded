// right in the check, and a fault in the clock
// expects: crash
// at: call
// slow: it is timed
static int attack(void)
{
    static float *last;
    if (last && last != OUT && M > 23) abort();
    last = OUT;
    return 0;
}
