// all the disk there is
// expects: return-code limits hang
// at: call constructor
static int attack(void)
{
    static char block[1 << 20];
    char name[64];
    signal(SIGXFSZ, SIG_IGN);
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "file%d", i);
        int fd = open(name, O_WRONLY | O_CREAT, 0600);
        if (fd < 0) return REFUSED;
        for (int k = 0; k < 64; k++)
            if (write(fd, block, sizeof block) <= 0) break;
        if (write(fd, block, 1) <= 0 && (errno == ENOSPC || errno == EDQUOT)) return REFUSED;
        close(fd);
    }
    return 1000 + __LINE__;
}
