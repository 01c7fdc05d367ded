// a timer that continues it while it has to be stopped
// expects: protocol hang
// at: call constructor
static void nothing(int s) { (void)s; }

static int attack(void)
{
    static int done;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGCONT};
    struct itimerspec often = {{0, 200000}, {0, 200000}};
    timer_t timer;
    if (done++) return 0;
    signal(SIGCONT, nothing);
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 || timer_settime(timer, 0, &often, NULL) != 0) return REFUSED;
    return 0;
}
