// the channel shut down in both directions
// expects: protocol
// at: call constructor
static int attack(void)
{
    shutdown(3, SHUT_RDWR);
    for (;;) pause();
}
