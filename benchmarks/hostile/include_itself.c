// itself, without end
// expects: does-not-compile
// at: build
#include __FILE__
int kernel(void) { return 0; }
