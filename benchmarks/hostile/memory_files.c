// memory that outlives the process: memfd, POSIX and System V shared memory
// expects: return-code
// at: call constructor
static int attack(void)
{
    TRY(memfd_create("hidden", 0));
    TRY(syscall(447 /* memfd_secret */, 0));
    TRY(shm_open("/hidden", O_RDWR | O_CREAT, 0600));
    TRY(open("/dev/shm/hidden", O_RDWR | O_CREAT, 0600));
    TRY(shmget(IPC_PRIVATE, 1 << 20, IPC_CREAT | 0600));
    TRY(shmget(4711, 1 << 20, IPC_CREAT | 0600));
    TRY(shmat(0, NULL, 0));
    return REFUSED;
}
