// an answer to a call that it was not told the number of
// expects: protocol
// at: call constructor
static int attack(void)
{
    char text[128];
    int size = sprintf(text + 4, "{\"op\":\"call\",\"ok\":true,\"rc\":0,\"nonce\":%u}", 12345u);
    memcpy(text, &size, 4);
    send(3, text, (size_t)size + 4, 0);
    for (;;) pause();
}
