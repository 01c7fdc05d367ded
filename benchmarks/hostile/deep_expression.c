// brackets, deeper than a parser's stack
// expects: does-not-compile build-limit
// at: build
// slow: seconds to compile
#define A(x) ((((((((((((((((x))))))))))))))))
#define B(x) A(A(A(A(A(A(A(A(A(A(A(A(A(A(A(A(x))))))))))))))))
#define C(x) B(B(B(B(B(B(B(B(B(B(B(B(B(B(B(B(x))))))))))))))))
#define D(x) C(C(C(C(C(C(C(C(C(C(C(C(C(C(C(C(x))))))))))))))))
int kernel(void) { return D(D(0)); }
