// a precompiled header of its own making
// expects: does-not-compile
// at: build
#pragma GCC pch_preprocess "/proc/self/fd/0"
int kernel(void) { return 0; }
