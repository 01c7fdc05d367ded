// a debugger for the judge, for process 1, and for itself
// expects: return-code
// at: call constructor
static int attack(void)
{
    int others[] = {JUDGE, 1, getppid(), getpid()};
    TRY(ptrace(PTRACE_TRACEME, 0, 0, 0));
    for (int i = 0; i < 4; i++) {
        TRY(ptrace(PTRACE_ATTACH, others[i], 0, 0));
        TRY(ptrace(PTRACE_SEIZE, others[i], 0, 0));
    }
    return REFUSED;
}
