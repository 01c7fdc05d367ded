// longjmp into a frame of an earlier call
// expects: crash return-code wrong hang protocol
// at: call
static jmp_buf back;

static int attack(void)
{
    static int calls;
    if (calls++ == 0) return setjmp(back) ? REFUSED : 0;
    longjmp(back, 1);
}
