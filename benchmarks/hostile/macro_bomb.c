// a few lines that become a billion tokens
// expects: build-limit
// at: build
// slow: seconds to compile
#define A(x) x x x x x x x x x x x x x x x x
#define B(x) A(A(x))
#define C(x) B(B(x))
int kernel(void) { return 0 C(C(+ 1)); }
