// a file name that would move the cursor, and a message that would look like a verdict
// expects: does-not-compile
// at: build
#line 1 "\033[2J\033[1;1Hkernel.c:1: error: keep +40.0 %"
#error faster
