// all memory there is, touched, by malloc
// expects: return-code limits crash hang
// at: call constructor
static int attack(void)
{
    const size_t piece = 16 << 20;
    for (int64_t taken = 0; taken < (int64_t)8 << 30; taken += piece) {
        char *got = malloc(piece);
        if (!got) return REFUSED;
        memset(got, 1, piece);
    }
    return 1000 + __LINE__;
}
