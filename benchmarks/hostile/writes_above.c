// one word after its output
// expects: out-of-bounds
// at: call
static int attack(void)
{
    OUT[M * N] = 1.0f;
    return 0;
}
