// an arithmetic fault
// expects: crash
// at: call
static int attack(void)
{
    volatile int some = 5, none = 0;
    return some / none;
}
