// asks the compiler which files there are
// expects: does-not-compile
// at: build
#if __has_include(REFERENCE)
#define SEEN 1
#elif __has_include("/etc/shadow") || __has_include("/etc/passwd")
#define SEEN 1
#endif
#ifndef SEEN
#error none is seen
#endif
int kernel(void) { return 1001; }
