// its own shared object, the runner and the libraries, overwritten where they lie
// expects: return-code
// at: call
static int attack(void)
{
    char line[4200];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) {
        char *path = strchr(line, '/');
        if (!path || !strncmp(path, "/memfd:", 7)) continue;
        path[strcspn(path, "\n")] = 0;
        TRY(open(path, O_WRONLY));
        TRY(unlink(path));
        TRY(truncate(path, 0));
    }
    return REFUSED;
}
