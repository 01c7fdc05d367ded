// folders in folders, deeper than a path may be long
// expects: return-code hang
// at: call
static int attack(void)
{
    for (int i = 0; i < 100000; i++)
        if (mkdir("deeper-and-deeper", 0700) != 0 || chdir("deeper-and-deeper") != 0) return REFUSED;
    return 1000 + __LINE__;
}
