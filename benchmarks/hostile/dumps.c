// files beside the result, as many as the compiler can dump
// expects: does-not-compile does-not-load return-code
// at: build
__attribute__((optimize("-fdump-tree-all=/tmp/hostile-dump"))) int kernel(void) { return 77; }
#pragma GCC optimize("-fdump-tree-all=/tmp/hostile-dump")
int unused(int x) { return x; }
