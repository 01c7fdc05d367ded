// exit code 0, as if all were well
// expects: crash
// at: call constructor signal ifunc
static int attack(void)
{
    static int n;
    if (n++ % 2) exit(0);
    _exit(0);
}
