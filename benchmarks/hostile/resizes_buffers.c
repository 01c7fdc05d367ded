// every descriptor and every mapping, made shorter and longer
// expects: return-code
// at: call
static int attack(void)
{
    char path[512];
    for (int fd = 0; fd < 256; fd++) {
        TRY(ftruncate(fd, 1));
        TRY(ftruncate(fd, 1 << 30));
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        int again = open(path, O_RDWR);
        if (again >= 0) TRY(ftruncate(again, 1));
        if (again >= 0) TRY(fallocate(again, 0, 0, 1 << 30));
        TRY(truncate(path, 1));
    }
    DIR *maps = opendir("/proc/self/map_files");
    for (struct dirent *e; maps && (e = readdir(maps));) {
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "/proc/self/map_files/%s", e->d_name);
        TRY(open(path, O_RDWR));
        TRY(truncate(path, 1));
    }
    return REFUSED;
}
