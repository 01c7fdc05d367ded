// one word before its output
// expects: out-of-bounds
// at: call
static int attack(void)
{
    OUT[-1] = 1.0f;
    return 0;
}
