// an answer that is nested a thousand deep
// expects: protocol
// at: call
static int attack(void)
{
    char text[2004];
    int size = 2000;
    memset(text, '[', sizeof text);
    memcpy(text, &size, 4);
    send(3, text, sizeof text, 0);
    for (;;) pause();
}
