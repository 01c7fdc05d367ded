// a way out, by any protocol
// expects: return-code
// at: call constructor
static int attack(void)
{
    int pair[2];
    for (int family = 0; family < 46; family++) {
        TRY(socket(family, SOCK_STREAM, 0));
        TRY(socket(family, SOCK_DGRAM, 0));
        TRY(socket(family, SOCK_RAW, 0));
    }
    TRY(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    TRY(connect(3, (struct sockaddr *)&(struct sockaddr){AF_UNSPEC}, 16));
    TRY(listen(3, 1));
    TRY(accept(3, NULL, NULL));
    return REFUSED;
}
