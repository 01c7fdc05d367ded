/* runner ARTIFACT: maps buffers, loads the artifact, calls it when told. The channel is descriptor 3; messages are in __init__.py.
 *
 * Until LOAD this is our program. After it the process holds hostile code and every byte it sends is judged by the judge:
 * nothing here defends against the artifact. It knows no contents, no clock and no answers.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHANNEL = 3, BUFFERS = 1024, COLUMNS = 256, WRITABLE = 0x100, MAGIC = 0x4b465442, TEXT = 2048, GUARD = 65536 };
enum { OP_MAP = 1, OP_TABLE, OP_LOAD, OP_CALL, OP_EXIT, OP_LAYOUT };

struct message {
    uint32_t op, a;
    uint64_t b;
};
struct buffer {
    char *at;
    uint64_t size;
    int writable;
};
typedef int entry_fn(const uint64_t *words);

static struct buffer buffers[BUFFERS];
static uint64_t *calls; /* the table with offsets turned into pointers, rows one after the other */
static uint32_t rows, columns;
static entry_fn *entry;
static char *stack_top;

/* ---- replies: built by hand, so that the fault handler can use the same code ------------------------------------------- */

struct frame {
    char text[TEXT];
    uint32_t used;
};

static void put(struct frame *f, const char *s) {
    while (*s && f->used < TEXT - 8) f->text[f->used++] = *s++;
}

static void put_number(struct frame *f, int64_t value) {
    char digits[24];
    int i = sizeof digits - 1;
    uint64_t rest = value < 0 ? -(uint64_t)value : (uint64_t)value;
    digits[i] = 0;
    do digits[--i] = (char)('0' + rest % 10);
    while (rest /= 10);
    if (value < 0) digits[--i] = '-';
    put(f, digits + i);
}

/* A JSON string of what can be shown; all else becomes a question mark. */
static void put_quoted(struct frame *f, const char *s) {
    put(f, "\"");
    for (int i = 0; i < 1000 && s[i]; i++) {
        char one[3] = {s[i], 0, 0};
        if (s[i] == '"' || s[i] == '\\') one[0] = '\\', one[1] = s[i];
        else if (s[i] < 0x20 || s[i] > 0x7e) one[0] = '?';
        put(f, one);
    }
    put(f, "\"");
}

static void field(struct frame *f, const char *name, int64_t value) {
    put(f, ",\"");
    put(f, name);
    put(f, "\":");
    put_number(f, value);
}

static void begin(struct frame *f, const char *op, int ok) {
    f->used = 4;
    put(f, "{\"op\":\"");
    put(f, op);
    put(f, ok ? "\",\"ok\":true" : "\",\"ok\":false");
}

static void finish(struct frame *f) {
    put(f, "}");
    uint32_t length = f->used - 4;
    memcpy(f->text, &length, 4);
    send(CHANNEL, f->text, f->used, MSG_NOSIGNAL);
}

static void answer(const char *op, const char *error, int rc, uint64_t b) {
    static struct frame f;
    begin(&f, op, error == NULL && rc == 0);
    field(&f, "rc", rc);
    field(&f, "nonce", (int64_t)(b >> 32));
    if (error) put(&f, ",\"error\":"), put_quoted(&f, error);
    finish(&f);
}

/* ---- faults ------------------------------------------------------------------------------------------------------------ */

static const int FAULTS[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

/* Which buffer an address belongs to or comes close to, with the offset from its start. */
static void put_place(struct frame *f, const char *address) {
    for (int i = 0; i < BUFFERS; i++) {
        const struct buffer *b = &buffers[i];
        if (!b->at || address < b->at - GUARD || address >= b->at + b->size + GUARD) continue;
        field(f, "buffer", i);
        field(f, "offset", address - b->at);
        return;
    }
    struct rlimit stack;
    if (getrlimit(RLIMIT_STACK, &stack) != 0 || stack.rlim_cur == RLIM_INFINITY) return;
    int64_t deep = stack_top - address;
    if (deep > (int64_t)stack.rlim_cur - (1 << 20) && deep < (int64_t)stack.rlim_cur + (1 << 20)) field(f, "stack", deep);
}

static void on_fault(int signal, siginfo_t *info, void *context) {
    static struct frame f;
    (void)context;
    begin(&f, "crash", 0);
    field(&f, "signal", signal);
    field(&f, "code", info->si_code);
    if (info->si_code > 0 && (signal == SIGSEGV || signal == SIGBUS)) {
        field(&f, "address", (int64_t)((uintptr_t)info->si_addr >> 12)); /* the page: 64 bits are more than JSON numbers should have */
        put_place(&f, info->si_addr);
    }
    finish(&f);
    /* Said once. Without handlers the fault comes again and ends the process; abort() goes on to other faults. */
    for (size_t i = 0; i < sizeof FAULTS / sizeof *FAULTS; i++) sigaction(FAULTS[i], &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
}

static void watch_faults(void) {
    static char room[65536];
    stack_t stack = {.ss_sp = room, .ss_size = sizeof room};
    sigaltstack(&stack, NULL);
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    for (size_t i = 0; i < sizeof FAULTS / sizeof *FAULTS; i++) sigaction(FAULTS[i], &action, NULL);
}

/* ---- memory ------------------------------------------------------------------------------------------------------------ */

static const char *why(const char *nothing_wrong) { return errno ? strerror(errno) : nothing_wrong; }

/* Pages of the buffer between two stretches that cannot be touched, so that running over an end is a fault. */
static char *map_guarded(int fd, uint64_t size, int protection) {
    uint64_t span = (size + 4095) / 4096 * 4096;
    char *area = mmap(NULL, span + 2 * GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (area == MAP_FAILED) return NULL;
    char *at = mmap(area + GUARD, size, protection, MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd, 0);
    return at == MAP_FAILED ? NULL : at;
}

static const char *check_fd(int fd, uint64_t size) {
    struct stat facts;
    if (fd < 0 || fstat(fd, &facts) != 0) return "no descriptor came";
    return size > 0 && (uint64_t)facts.st_size == size ? NULL : "the descriptor has another size";
}

static void map_buffer(const struct message *m, int fd) {
    int writable = (m->op & WRITABLE) != 0;
    const char *error = check_fd(fd, m->b);
    if (!error && (m->a >= BUFFERS || buffers[m->a].at)) error = "too many buffers";
    errno = 0;
    char *at = error ? NULL : map_guarded(fd, m->b, writable ? PROT_READ | PROT_WRITE : PROT_READ);
    if (!error && !at) error = why("cannot be mapped");
    if (at) buffers[m->a] = (struct buffer){at, m->b, writable};
    answer("map", error, 0, 0);
}

/* Turns one column's offsets into pointers. */
static const char *resolve(const uint64_t *from, uint64_t *to, uint32_t kind, uint32_t column) {
    const struct buffer *b = kind ? &buffers[kind - 1] : NULL;
    for (uint64_t row = 0; row < rows; row++) {
        uint64_t word = from[row * columns + column];
        if (b && word != UINT64_MAX && word >= b->size) return "an offset lies outside its buffer";
        if (b) word = word == UINT64_MAX ? 0 : (uint64_t)(uintptr_t)(b->at + word);
        to[row * columns + column] = word;
    }
    return NULL;
}

static const char *read_table(const char *at, uint64_t size) {
    const uint32_t *head = (const uint32_t *)at;
    if (size < 16 || head[0] != MAGIC || head[1] == 0 || head[1] > COLUMNS || head[2] == 0) return "this is no call table";
    uint64_t start = (16 + 4 * (uint64_t)head[1] + 7) / 8 * 8, bytes = 8ull * head[1] * head[2];
    if (size != start + bytes) return "the call table has another size than it says";
    free(calls);
    columns = head[1], rows = head[2];
    calls = malloc(bytes);
    if (!calls) return rows = 0, "no memory for the call table";
    for (uint32_t c = 0; c < columns; c++) {
        uint32_t kind = head[4 + c];
        if (kind > BUFFERS || (kind && !buffers[kind - 1].at)) return rows = 0, "a column names a buffer that is not mapped";
        const char *error = resolve((const uint64_t *)(at + start), calls, kind, c);
        if (error) return rows = 0, error;
    }
    return NULL;
}

static void take_table(const struct message *m, int fd) {
    const char *error = check_fd(fd, m->b);
    char *at = error ? MAP_FAILED : mmap(NULL, m->b, PROT_READ, MAP_SHARED, fd, 0);
    if (!error && at == MAP_FAILED) error = strerror(errno);
    if (!error) error = read_table(at, m->b);
    if (at != MAP_FAILED) munmap(at, m->b);
    answer("table", error, 0, 0);
}

/* ---- the artifact ------------------------------------------------------------------------------------------------------ */

static void load(const struct message *m, const char *path) {
    void *artifact = entry ? NULL : dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (artifact) *(void **)&entry = dlsym(artifact, "keepfast_call");
    const char *error = entry && artifact ? NULL : dlerror();
    if (!error && !artifact) error = "it is loaded already";
    answer("load", error, 0, m->b);
}

static void call(const struct message *m) {
    uint64_t first = m->a, count = (uint32_t)m->b;
    if (!entry || first + count > rows) {
        answer("call", "there are no such calls", 0, m->b);
        return;
    }
    const uint64_t *words = calls + first * columns;
    for (uint64_t i = 0; i < count; i++, words += columns) {
        int rc = entry(words);
        if (rc == 0) continue;
        answer("call", NULL, rc, m->b);
        return;
    }
    answer("call", NULL, 0, m->b);
}

/* ---- the channel ------------------------------------------------------------------------------------------------------- */

/* One message; its descriptor, or -1, goes to `fd`. Ends the process when the judge is gone, and waits for its end when the
 * artifact broke the channel: what is seen then must not depend on who is quicker. */
static void next(struct message *m, int *fd) {
    union {
        char space[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec part = {m, sizeof *m};
    struct msghdr head = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof control.space};
    ssize_t got;
    do got = recvmsg(CHANNEL, &head, MSG_WAITALL | MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got == 0) _exit(0);
    while (got != (ssize_t)sizeof *m) pause();
    struct cmsghdr *c = CMSG_FIRSTHDR(&head);
    *fd = -1;
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) memcpy(fd, CMSG_DATA(c), sizeof *fd);
}

static void serve(const struct message *m, int fd, const char *path) {
    switch (m->op & ~(uint32_t)WRITABLE) {
    case OP_MAP: map_buffer(m, fd); break;
    case OP_TABLE: take_table(m, fd); break;
    case OP_LOAD: load(m, path); break;
    case OP_CALL: call(m); break;
    case OP_LAYOUT: answer("layout", NULL, 0, 0); break; /* for the Python runner; C needs none */
    case OP_EXIT: _exit(0);
    default: answer("unknown", "there is no such message", 0, m->b);
    }
    if (fd >= 0) close(fd);
}

int main(int argc, char **argv) {
    char here;
    struct message m;
    int fd;
    if (argc != 2) return 2;
    stack_top = &here;
    watch_faults();
    answer("ready", NULL, 0, 0);
    for (;;) {
        next(&m, &fd);
        serve(&m, fd, argv[1]);
    }
}
