// the reference as assembler source, so that the message shows it
// expects: does-not-compile
// at: build
__asm__(".include \"" REFERENCE "\"");
int kernel(void) { return 0; }
