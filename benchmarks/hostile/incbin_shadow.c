// the machine's secrets as data
// expects: does-not-compile
// at: build
__asm__(".incbin \"/etc/shadow\"");
int kernel(void) { return 0; }
