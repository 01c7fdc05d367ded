// the clock set back
// expects: return-code
// at: call
static int attack(void)
{
    struct timeval then = {1, 0};
    struct timespec at = {1, 0};
    struct timex change = {.modes = ADJ_FREQUENCY, .freq = 1 << 20};
    TRY(settimeofday(&then, NULL));
    TRY(clock_settime(CLOCK_REALTIME, &at));
    TRY(adjtimex(&change));
    TRY(clock_adjtime(CLOCK_REALTIME, &change));
    return REFUSED;
}
