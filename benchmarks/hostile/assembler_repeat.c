// a line that the assembler repeats a billion times
// expects: build-limit
// at: build
// slow: seconds to compile
__asm__(".rept 1000000000\n.quad 1, 2, 3, 4\n.endr");
int kernel(void) { return 0; }
