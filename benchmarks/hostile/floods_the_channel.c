// a gigabyte on the channel
// expects: protocol hang
// at: call
static int attack(void)
{
    static char big[1 << 20];
    for (int i = 0; i < 1024; i++) send(3, big, sizeof big, MSG_DONTWAIT);
    return 0;
}
