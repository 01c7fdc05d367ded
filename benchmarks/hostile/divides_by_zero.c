// an arithmetic fault
// expects: crash
// at: call
static int attack(void)
{
    volatile int none = 0;
    return 1 / none;
}
