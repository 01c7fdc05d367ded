// itself twice, two hundred deep
// expects: build-limit
// at: build
// slow: 20 s to compile
#if __INCLUDE_LEVEL__ < 190
#include __FILE__
#include __FILE__
#endif
