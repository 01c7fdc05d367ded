// signals that the kernel sends to another process when a descriptor becomes ready
// expects: return-code
// at: call
static int attack(void)
{
    struct f_owner_ex owner = {F_OWNER_PID, JUDGE};
    int pid = JUDGE, on = 1;
    TRY(fcntl(3, F_SETOWN, JUDGE));
    TRY(fcntl(3, F_SETOWN, getpid()));
    TRY(fcntl(3, F_SETSIG, SIGKILL));
    TRY(fcntl(3, F_SETOWN_EX, &owner));
    TRY(ioctl(3, 0x8901 /* FIOSETOWN */, &pid));
    TRY(ioctl(3, 0x8902 /* SIOCSPGRP */, &pid));
    TRY(ioctl(3, FIOASYNC, &on));
    TRY(ioctl(0, TIOCSTI, "x"));
    return REFUSED;
}
