// right in the check, and no end in the clock
// expects: hang
// at: call
// slow: it is timed
static int attack(void)
{
    static float *last;
    while (last && last != OUT && M > 23) busy(1.0);
    last = OUT;
    return 0;
}
