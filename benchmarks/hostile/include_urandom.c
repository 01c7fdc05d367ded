// another device without end as source
// expects: build-limit does-not-compile
// at: build
#include "/dev/urandom"
int kernel(void) { return 0; }
