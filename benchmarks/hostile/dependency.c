// a dependency that tells whether and when a file was written
// expects: does-not-compile
// at: build
_Pragma("GCC dependency \"/etc/passwd\" seen")
#pragma GCC dependency "/etc/shadow"
int kernel(void) { return 0; }
