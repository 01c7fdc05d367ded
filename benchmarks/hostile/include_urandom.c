// another device without end as source
// expects: build-limit does-not-compile
// at: build
// slow: seconds to compile
#include "/dev/urandom"
int kernel(void) { return 0; }
