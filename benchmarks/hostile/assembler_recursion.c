// a macro of the assembler that calls itself
// expects: does-not-compile build-limit
// at: build
__asm__(".macro again\nagain\nagain\n.endm\nagain");
int kernel(void) { return 0; }
