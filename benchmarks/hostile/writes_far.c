// all memory from its output on
// expects: crash
// at: call
static int attack(void)
{
    for (volatile float *p = OUT;; p++) *p = 1.0f;
}
