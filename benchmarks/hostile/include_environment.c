// the compiler's environment, so that the message shows it
// expects: does-not-compile
// at: build
#include "/proc/self/environ"
#include "/proc/1/environ"
#error not stopped by that
