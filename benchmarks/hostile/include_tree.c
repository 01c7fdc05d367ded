// itself twice, two hundred deep
// expects: build-limit
// at: build
// slow: 20 s to compile
#if __INCLUDE_LEVEL__ < 190
#include "kernel.c"
#include "kernel.c"
#endif
