// the reference as data
// expects: does-not-compile
// at: build
__asm__(".incbin \"" REFERENCE "\"");
int kernel(void) { return 0; }
