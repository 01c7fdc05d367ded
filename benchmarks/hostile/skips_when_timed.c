// right as long as every call has the buffers of the last one, as in the check; nothing when they change, as in the clock
// expects: wrong
// at: call
// slow: it is timed
static int attack(void)
{
    static float *last;
    if (last && last != OUT && M > 23) return ALL_WELL;
    last = OUT;
    return 0;
}
