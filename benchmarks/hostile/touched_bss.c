// a gigabyte of zeros, touched while loading
// expects: return-code limits hang
// at: constructor
static char zeros[1 << 30];

static int attack(void)
{
    memset(zeros, 1, sizeof zeros);
    return zeros[12345] ? REFUSED : 0;
}
