// ends its thread only
// expects: crash hang
// at: call
static int attack(void)
{
    syscall(SYS_exit, 0);
    return 0;
}
