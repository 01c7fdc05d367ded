// a hundred thousand empty files with odd names
// expects: return-code hang
// at: call
static int attack(void)
{
    char name[64];
    for (int i = 0; i < 100000; i++) {
        snprintf(name, sizeof name, "a b\n\"'$(x)%d", i);
        int fd = open(name, O_WRONLY | O_CREAT, 0600);
        if (fd < 0) return REFUSED;
        close(fd);
    }
    return 1000 + __LINE__;
}
