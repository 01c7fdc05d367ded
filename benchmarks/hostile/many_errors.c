// a million errors
// expects: does-not-compile build-limit
// at: build
#define A(x) x x x x x x x x x x x x x x x x
#define B(x) A(A(x))
int kernel(void) { B(A(undeclared;)) }
