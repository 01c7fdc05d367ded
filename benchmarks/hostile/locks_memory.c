// memory that can never be swapped
// expects: return-code
// at: call
static int attack(void)
{
    static char page[8192];
    TRY(mlock(page, sizeof page));
    TRY(mlockall(MCL_CURRENT | MCL_FUTURE));
    TRY(mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED, -1, 0));
    return REFUSED;
}
