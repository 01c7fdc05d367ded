// files, folders and links in every place it knows
// expects: return-code
// at: call constructor signal
static int attack(void)
{
    const char *places[] = {"/", "/tmp", "/var/tmp", "/dev", "/dev/shm", "/etc", "/usr", "/usr/lib", "/lib", "/proc", "/proc/sys/kernel", "/sys",
                            "/sys/fs/cgroup", "/run", "/root", "/home", "/mnt", "..", HOME, TASK, TASK "/kernel", REPOSITORY, REPOSITORY "/.git"};
    char path[4200];
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(path, sizeof path, "%s/hostile", places[i]);
        TRY(open(path, O_WRONLY | O_CREAT, 0644));
        TRY(mkdir(path, 0755));
        TRY(symlink("/etc/passwd", path));
        TRY(mknod(path, S_IFIFO | 0600, 0));
        TRY(open(places[i], O_TMPFILE | O_WRONLY, 0600));
        TRY(rename(places[i], path));
        TRY(chmod(places[i], 0777));
    }
    return REFUSED;
}
