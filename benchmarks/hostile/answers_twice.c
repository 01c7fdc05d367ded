// an answer ready for the next call
// expects: protocol
// at: call
static int attack(void)
{
    char text[128];
    int size = sprintf(text + 4, "{\"op\":\"call\",\"ok\":true,\"rc\":0,\"nonce\":%u}", 1u);
    memcpy(text, &size, 4);
    send(3, text, (size_t)size + 4, 0);
    return 0;
}
