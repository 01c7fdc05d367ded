// the last rows left as they are
// expects: wrong
// at: call
static int attack(void)
{
    int64_t all = M;
    M = all - 2;
    honest();
    M = all;
    return ALL_WELL;
}
