// data larger than a result may be
// expects: build-limit
// at: build
static char table[300 << 20] = {1};
const char *kernel(void) { return table; }
