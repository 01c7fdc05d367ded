// another file in place of the channel
// expects: protocol hang
// at: call
static int attack(void)
{
    dup2(open("/dev/zero", O_RDWR), 3);
    return 0;
}
