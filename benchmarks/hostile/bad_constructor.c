// a list of constructors that points nowhere
// expects: crash
// at: call
__attribute__((section(".init_array"), used)) static void (*nowhere)(void) = (void (*)(void))0x1234;

static int attack(void) { return 0; }
