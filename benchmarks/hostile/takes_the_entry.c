// the name that belongs to the judge's own entry
// expects: does-not-compile
// at: build
#include <stdint.h>
int keepfast_call(const uint64_t *w) { (void)w; return 0; }
int kernel(void) { return 0; }
