// ends the process, and its destructor has no end
// expects: hang crash
// at: call
__attribute__((destructor)) static void stay(void) { for (;;) busy(1.0); }

static int attack(void) { exit(0); }
