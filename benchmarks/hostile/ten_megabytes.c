// a few lines that become ten megabytes of source
// expects: build-limit does-not-compile
// at: build
// slow: seconds to compile
#define A(x) x x x x x x x x x x x x x x x x
#define B(x) A(A(x))
#define C(x) B(B(x))
static volatile int sum;
void f(void) { C(A(sum += 1;)) }
#error and then this
