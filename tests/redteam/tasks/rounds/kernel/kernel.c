int kernel(void) { return 0; }
