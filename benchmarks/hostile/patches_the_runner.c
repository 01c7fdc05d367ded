// the runner's own code made writable and overwritten
// expects: crash protocol hang limits
// at: call constructor
static int attack(void)
{
    char line[1024];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        if (!strstr(line, "r-xp") || !strstr(line, "runner") || sscanf(line, "%lx-%lx", &from, &to) != 2) continue;
        if (mprotect((void *)from, to - from, PROT_READ | PROT_WRITE | PROT_EXEC) != 0) return REFUSED;
        memset((void *)from, 0xcc, to - from);
        return 0;
    }
    return 1000 + __LINE__;
}
