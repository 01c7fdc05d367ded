// an alarm that writes the result after the call has returned
// expects: late wrong
// at: call
static void finish(int s) { (void)s, honest(); }

static int attack(void)
{
    struct itimerval soon = {{0, 0}, {0, 3000}};
    static int calls;
    if (calls++ == 0) signal(SIGALRM, finish);
    setitimer(ITIMER_REAL, &soon, NULL);
    M = M - 1; // what honest() leaves is for the alarm
    honest();
    M = M + 1;
    return ALL_WELL;
}
