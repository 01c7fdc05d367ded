// command lines, environments and memory of others, through /proc
// expects: return-code
// at: call constructor
static int attack(void)
{
    char path[512];
    DIR *all = opendir("/proc");
    for (struct dirent *e; all && (e = readdir(all));) {
        int pid = atoi(e->d_name);
        if (pid <= 0 || pid == getpid()) continue;
        const char *of[] = {"cmdline", "environ", "mem", "maps", "fd", "cwd", "root"};
        for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
            snprintf(path, sizeof path, "/proc/%d/%s", pid, of[i]);
            TRY(open(path, O_RDONLY));
        }
    }
    return REFUSED;
}
