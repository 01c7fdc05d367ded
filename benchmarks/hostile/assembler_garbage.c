// what the assembler does not understand
// expects: does-not-compile
// at: build
int kernel(void) { __asm__ volatile("\x01\x02 garbage %%%% (((( .if .else .endm"); return 0; }
