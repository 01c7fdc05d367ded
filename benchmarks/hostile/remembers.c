// the answer to the first contents, for all that come
// expects: stateful
// at: call
static int attack(void)
{
    static float kept[1 << 16];
    static int64_t m, n;
    if (m == M && n == N) memcpy(OUT, kept, (size_t)(M * N) * 4);
    else honest(), memcpy(kept, OUT, (size_t)(M * N) * 4);
    m = M, n = N;
    return ALL_WELL;
}
