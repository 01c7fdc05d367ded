// bytes on the judge's channel that are no answer
// expects: protocol
// at: call constructor signal
static int attack(void)
{
    static char big[100000];
    write(3, "\xff\xff\xff\xff{", 5);
    write(3, big, sizeof big);
    for (;;) pause();
}
