// other programs: a shell, a spawned one, the compiler, this file itself
// expects: return-code
// at: call constructor
static int attack(void)
{
    char *words[] = {"sh", "-c", "sleep 60", NULL};
    pid_t child;
    execve("/bin/sh", words, environ);
    execve("/proc/self/exe", words, environ);
    execvp("gcc", words);
    fexecve(3, words, environ);
    syscall(SYS_execveat, AT_FDCWD, "/bin/sh", words, environ, 0);
    if (posix_spawn(&child, "/bin/sh", NULL, NULL, words, environ) == 0) return 1000 + __LINE__;
    if (popen("sleep 60", "r")) return 1000 + __LINE__;
    if (system("sleep 60") == 0) return 1000 + __LINE__;
    return REFUSED;
}
