// itself, without end
// expects: does-not-compile
// at: build
#include "kernel.c"
int kernel(void) { return 0; }
