// a device without end as source
// expects: build-limit does-not-compile
// at: build
#include "/dev/zero"
int kernel(void) { return 0; }
