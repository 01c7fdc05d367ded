// says that it crashed in a way that never was, with numbers out of range
// expects: protocol
// at: call
static int attack(void)
{
    char text[256];
    int size = sprintf(text + 4, "{\"op\":\"crash\",\"ok\":false,\"signal\":9,\"code\":1,\"buffer\":99999,\"offset\":-1,\"address\":0}");
    memcpy(text, &size, 4);
    send(3, text, (size_t)size + 4, 0);
    for (;;) pause();
}
