// finds the number of the call on the runner's stack, answers in its place, and serves every later call with nothing done
// expects: wrong protocol
// at: call
struct message {
    uint32_t op, a;
    uint64_t b;
};

static void answer(uint32_t nonce)
{
    char text[128];
    int size = sprintf(text + 4, "{\"op\":\"call\",\"ok\":true,\"rc\":0,\"nonce\":%u}", nonce);
    memcpy(text, &size, 4);
    send(3, text, (size_t)size + 4, 0);
}

static int attack(void)
{
    const char *at = __builtin_frame_address(0);
    for (int i = 0; i < 16384; i += 8) {
        struct message m;
        memcpy(&m, at + i, sizeof m);
        if (m.op != 4 || m.a != 0 || (uint32_t)m.b != 1 || m.b >> 32 == 0) continue;
        answer((uint32_t)(m.b >> 32));
        for (;;) {
            char byte[256];
            union {
                char space[256];
                struct cmsghdr align;
            } control;
            struct iovec part = {byte, 16};
            struct msghdr head = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof control.space};
            if (recvmsg(3, &head, MSG_WAITALL) != 16) _exit(1);
            memcpy(&m, byte, 16);
            answer((uint32_t)(m.b >> 32));
        }
    }
    return 1000 + __LINE__;
}
