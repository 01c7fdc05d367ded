// a gigabyte of output and of errors
// expects: return-code hang
// at: call constructor
static int attack(void)
{
    static char big[1 << 20];
    memset(big, 'x', sizeof big);
    memcpy(big, "\033]0;owned\007\033[2J", 13);
    for (int i = 0; i < 1024; i++) {
        if (write(1, big, sizeof big) < 0) errno = 0;
        if (write(2, big, sizeof big) < 0) errno = 0;
    }
    return REFUSED;
}
