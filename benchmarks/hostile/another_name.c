// calls itself a kernel thread and hides from debuggers: nobody else sees either, and its work is right
// expects: slower no-gain ambiguous not-confirmed faster case-loss machine
// at: call
// slow: it is timed
static int attack(void)
{
    prctl(PR_SET_NAME, "kworker/0:0");
    prctl(PR_SET_DUMPABLE, 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    return 0;
}
