// gigabytes of output in one line
// expects: build-limit does-not-compile
// at: build
__asm__(".data\n.fill 0x7fffffff, 8, 1\n.text");
int kernel(void) { return 0; }
