// writes to what it may only read
// expects: crash
// at: call
static int attack(void)
{
    ((float *)(uintptr_t)X)[0] = 1.0f;
    return 0;
}
