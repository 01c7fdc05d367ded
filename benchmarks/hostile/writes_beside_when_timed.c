// right in the check; in the clock it also writes beside its output, into that of another call
// expects: out-of-bounds wrong
// at: call
// slow: it is timed
static int attack(void)
{
    static float *last;
    honest();
    if (last && last != OUT && M > 23) OUT[M * N] = 1.0f;
    last = OUT;
    return ALL_WELL;
}
