// a channel that the runner cannot wait on any more
// expects: hang protocol
// at: call
// slow: 10 s until the judge gives up
static int attack(void)
{
    fcntl(3, F_SETFL, fcntl(3, F_GETFL) | O_NONBLOCK);
    return 0;
}
