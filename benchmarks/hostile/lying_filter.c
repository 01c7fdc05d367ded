// a filter on itself that lets the runner believe it has answered
// expects: hang
// at: call
static int attack(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sendto, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog all = {sizeof code / sizeof *code, code};
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all) != 0) return REFUSED;
    return 0;
}
