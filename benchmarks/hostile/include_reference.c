// the reference as source
// expects: does-not-compile
// at: build
#include REFERENCE
int kernel(void) { return 0; }
