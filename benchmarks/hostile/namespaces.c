// other views of the machine
// expects: return-code
// at: call constructor
static int attack(void)
{
    const int kinds[] = {CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWUSER, CLONE_NEWNET, CLONE_NEWIPC, CLONE_NEWUTS, CLONE_NEWCGROUP, 0x80 /* time */};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        TRY(unshare(kinds[i]));
        TRY(syscall(SYS_clone, kinds[i] | SIGCHLD, 0, 0, 0, 0));
    }
    TRY(setns(open("/proc/self/ns/mnt", O_RDONLY), 0));
    TRY(unshare(CLONE_FILES));
    return REFUSED;
}
