// messages and semaphores that outlive the process
// expects: return-code
// at: call
static int attack(void)
{
    TRY(msgget(4711, IPC_CREAT | 0600));
    TRY(msgget(IPC_PRIVATE, IPC_CREAT | 0600));
    TRY(semget(4711, 1, IPC_CREAT | 0600));
    TRY(mq_open("/hostile", O_RDWR | O_CREAT, 0600, NULL));
    return REFUSED;
}
