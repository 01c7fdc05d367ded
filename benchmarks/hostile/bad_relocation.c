// an address that the loader is asked to write at
// expects: crash does-not-load does-not-compile
// at: build
__asm__(".section .rela.dyn.more, \"a\"\n.quad 0x1000, 1, 0\n.text");
static volatile unsigned long nowhere = 8;
__attribute__((constructor)) static void at_load(void) { *(volatile int *)nowhere = 1; }
int kernel(void) { return 0; }
