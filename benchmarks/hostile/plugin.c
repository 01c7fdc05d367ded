// options and programs for the compiler, from inside the source
// expects: does-not-compile
// at: build
#pragma GCC optimize("-fplugin=/tmp/plugin.so", "-wrapper", "sh,-c,sleep 60")
#pragma GCC target("arch=nothing")
__attribute__((optimize("-fdump-tree-all"))) int kernel(void) { return 0; }
#error and then this
