// functions under the names that the runner calls
// expects: return-code
// at: call
static int heard;
__attribute__((visibility("default"))) ssize_t recvmsg(int fd, struct msghdr *m, int flags) { heard = 1; return syscall(SYS_recvmsg, fd, m, flags); }
__attribute__((visibility("default"))) int fstat(int fd, struct stat *s) { heard = 1; return (int)syscall(SYS_fstat, fd, s); }
__attribute__((visibility("default"))) void free(void *p) { heard = 1, (void)p; }

static int attack(void)
{
    static int calls;
    if (calls++ < 3) return 0;
    return heard ? 1000 + __LINE__ : REFUSED;
}
