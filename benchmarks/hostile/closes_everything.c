// all descriptors closed
// expects: protocol
// at: call constructor
static int attack(void)
{
    for (int fd = 0; fd < 1024; fd++) close(fd);
    return 0;
}
