// memory and descriptors of other processes
// expects: return-code
// at: call constructor
static int attack(void)
{
    char byte = 0, path[64];
    struct iovec here = {&byte, 1}, there = {&byte, 1};
    for (pid_t pid = 0; pid < 500; pid++) {
        pid_t whose = pid ? pid : JUDGE;
        if (whose == getpid()) continue;
        TRY(process_vm_readv(whose, &here, 1, &there, 1, 0));
        TRY(process_vm_writev(whose, &here, 1, &there, 1, 0));
        TRY(syscall(434 /* pidfd_open */, whose, 0));
        snprintf(path, sizeof path, "/proc/%d/mem", whose);
        TRY(open(path, O_RDWR));
    }
    TRY(syscall(438 /* pidfd_getfd */, 3, 3, 0));
    TRY(syscall(440 /* process_madvise */, 3, &here, 1, MADV_DONTNEED, 0));
    TRY(syscall(SYS_kcmp, getpid(), JUDGE, 0, 3, 3));
    TRY(syscall(SYS_move_pages, JUDGE, 0, 0, 0, 0, 0));
    return REFUSED;
}
