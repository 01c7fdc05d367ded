// the reference, the task, the ledger, the judge
// expects: return-code
// at: call constructor ifunc
static int attack(void)
{
    TRY(open(TASK "/reference.py", O_RDONLY));
    TRY(open(TASK "/task.toml", O_RDONLY));
    TRY(open(TASK, O_RDONLY | O_DIRECTORY));
    TRY(open(REPOSITORY "/.git/config", O_RDONLY));
    TRY(open(REPOSITORY "/.keepfast", O_RDONLY));
    TRY(open(REPOSITORY, O_PATH));
    TRY(open(HOME, O_RDONLY | O_DIRECTORY));
    return REFUSED;
}
