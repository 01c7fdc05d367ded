/* enter OPTIONS -- PROGRAM ARGUMENTS: starts a program inside the walls.
 *
 * The judge starts `enter`, which makes the namespaces and clones the walled process with CLONE_PARENT: so the judge is its parent,
 * can stop it and waits for it, while it is process 1 of its own PID namespace. `enter` reports its process id and exits;
 * without namespaces it stays as a keeper that ends the process group when the judge is gone.
 *
 * On the status socket, in this order: "pid N", then "ready" with a descriptor of the scratch folder, the judge's answer, and the end
 * of the stream when the program has begun. Or, at any point, "fail STEP OBJECT: REASON".
 */
#define _GNU_SOURCE
#include "enter.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_close_range
#define SYS_close_range 436
#endif
enum { HIGH = 64 }; /* descriptors are parked from here on while 3, 4, ... are filled */

void fail(const struct wall *w, const char *step, const char *object) {
    char text[1024];
    int size = snprintf(text, sizeof text, "fail %s %s: %s", step, object, strerror(errno));
    if (size > (int)sizeof text - 1) size = (int)sizeof text - 1;
    if (w->status < 0 || send(w->status, text, (size_t)size, MSG_NOSIGNAL) < 0) fprintf(stderr, "enter: %s\n", text + 5);
    _exit(120);
}

/* ---------------------------------------------------------------------------------------------- options */

static uint64_t number(const struct wall *w, const char *text) {
    char *end;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    if (errno != 0 || *text < '0' || *text > '9' || *end) errno = EINVAL, fail(w, "read number", text);
    return value;
}

static void add_core(struct wall *w, const char *value) {
    if (w->core_count == MAX_CORES) errno = E2BIG, fail(w, "read", "--core");
    w->cores[w->core_count++] = (int)number(w, value);
}

static void add_kept(struct wall *w, const char *value) {
    if (w->kept_count == MAX_KEPT) errno = E2BIG, fail(w, "read", "--keep");
    w->kept[w->kept_count++] = (int)number(w, value);
}

static void add_read(struct wall *w, const char *value) {
    if (w->reads == MAX_PATHS) errno = E2BIG, fail(w, "read", "--read");
    w->read[w->reads++] = value;
}

static void add_link(struct wall *w, const char *path, const char *target) {
    if (w->link_count == MAX_PATHS || !target) errno = E2BIG, fail(w, "read", "--link");
    w->links[w->link_count++] = (struct link){path, target};
}

static void add_device(struct wall *w, const char *value) {
    if (w->devices == MAX_DEVICES) errno = E2BIG, fail(w, "read", "--device");
    w->device[w->devices++] = value;
}

static enum profile profile(const struct wall *w, const char *name) {
    if (!strcmp(name, "builder")) return PROFILE_BUILDER;
    if (!strcmp(name, "runner")) return PROFILE_RUNNER;
    if (!strcmp(name, "device")) return PROFILE_DEVICE;
    errno = EINVAL, fail(w, "read profile", name);
}

static void option(struct wall *w, const char *name, const char *value) {
    if (!strcmp(name, "--status")) w->status = (int)number(w, value);
    else if (!strcmp(name, "--life")) w->life = (int)number(w, value);
    else if (!strcmp(name, "--mode")) w->mode = !strcmp(value, "root") ? MODE_ROOT : !strcmp(value, "user") ? MODE_USER : MODE_PLAIN;
    else if (!strcmp(name, "--profile")) w->profile = profile(w, value);
    else if (!strcmp(name, "--landlock")) w->landlock = (int)number(w, value);
    else if (!strcmp(name, "--seccomp")) w->seccomp = (int)number(w, value);
    else if (!strcmp(name, "--uid")) w->uid = (unsigned)number(w, value);
    else if (!strcmp(name, "--gid")) w->gid = (unsigned)number(w, value);
    else if (!strcmp(name, "--scratch")) w->scratch = value;
    else if (!strcmp(name, "--scratch-bytes")) w->scratch_bytes = number(w, value);
    else if (!strcmp(name, "--memory-bytes")) w->memory_bytes = number(w, value);
    else if (!strcmp(name, "--file-bytes")) w->file_bytes = number(w, value);
    else if (!strcmp(name, "--processes")) w->processes = number(w, value);
    else if (!strcmp(name, "--tasks")) w->tasks = number(w, value);
    else if (!strcmp(name, "--cpu-seconds")) w->cpu_seconds = number(w, value);
    else if (!strcmp(name, "--read")) add_read(w, value);
    else if (!strcmp(name, "--device")) add_device(w, value);
    else if (!strcmp(name, "--core")) add_core(w, value);
    else if (!strcmp(name, "--keep")) add_kept(w, value);
    else errno = EINVAL, fail(w, "read option", name);
}

static void options(struct wall *w, int argc, char **argv) {
    int i = 1;
    while (i < argc && strcmp(argv[i], "--") != 0) {
        if (i + 1 >= argc) errno = EINVAL, fail(w, "read value of", argv[i]);
        if (!strcmp(argv[i], "--link")) {
            add_link(w, argv[i + 1], i + 2 < argc ? argv[i + 2] : NULL);
            i += 3;
            continue;
        }
        option(w, argv[i], argv[i + 1]);
        i += 2;
    }
    if (i + 1 >= argc || !w->scratch) errno = EINVAL, fail(w, "find", "the program or the scratch folder");
    w->argv = argv + i + 1;
}

/* ---------------------------------------------------------------------------------------------- namespaces */

static void write_file(const struct wall *w, const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text)) fail(w, "write", path);
    close(fd);
}

static void map_self(const struct wall *w) {
    char line[64];
    write_file(w, "/proc/self/setgroups", "deny");
    snprintf(line, sizeof line, "%u %u 1", w->uid, w->uid);
    write_file(w, "/proc/self/uid_map", line);
    snprintf(line, sizeof line, "%u %u 1", w->gid, w->gid);
    write_file(w, "/proc/self/gid_map", line);
}

static void make_namespaces(const struct wall *w) {
    int flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWNET;
    if (w->mode == MODE_PLAIN) return;
    if (unshare(w->mode == MODE_USER ? flags | CLONE_NEWUSER : flags) != 0) fail(w, "make", "namespaces");
    if (w->mode == MODE_USER) map_self(w);
}

/* ---------------------------------------------------------------------------------------------- limits */

static void limit(const struct wall *w, int which, uint64_t soft, uint64_t hard) {
    struct rlimit now, set;
    if (getrlimit(which, &now) != 0) fail(w, "read", "limits");
    set.rlim_max = hard < now.rlim_max ? hard : now.rlim_max;
    set.rlim_cur = soft < set.rlim_max ? soft : set.rlim_max;
    if (setrlimit(which, &set) != 0) fail(w, "set", "limits");
}

/* CUDA pins host memory: as much as this machine allows, while there are still rights to say so. */
static void allow_pinning(const struct wall *w) {
    struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY}, now;
    if (w->profile != PROFILE_DEVICE || setrlimit(RLIMIT_MEMLOCK, &all) == 0) return;
    if (getrlimit(RLIMIT_MEMLOCK, &now) != 0) fail(w, "read", "limits");
    now.rlim_cur = now.rlim_max;
    if (setrlimit(RLIMIT_MEMLOCK, &now) != 0) fail(w, "set", "limits");
}

/* CUDA reserves terabytes of addresses, so with a device nothing bounds memory but the machine: see offer_to_oom_killer. */
static void set_limits(const struct wall *w) {
    const uint64_t mib = 1 << 20;
    int device = w->profile == PROFILE_DEVICE;
    uint64_t files = device ? 4096 : 256;
    if (!device) limit(w, RLIMIT_AS, w->memory_bytes, w->memory_bytes);
    limit(w, RLIMIT_NPROC, w->tasks, w->tasks);
    limit(w, RLIMIT_CPU, w->cpu_seconds, w->cpu_seconds + 1);
    limit(w, RLIMIT_FSIZE, w->file_bytes, w->file_bytes);
    limit(w, RLIMIT_NOFILE, files, files);
    limit(w, RLIMIT_STACK, 8 * mib, 64 * mib);
    limit(w, RLIMIT_CORE, 1, 1); /* 0 would still start a handler like apport for each crash; 1 never does, see core(5) */
    if (!device) limit(w, RLIMIT_MEMLOCK, 0, 0);
    limit(w, RLIMIT_MSGQUEUE, 0, 0);
}

static void pin(const struct wall *w) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = 0; i < w->core_count; i++) CPU_SET(w->cores[i], &set);
    if (w->core_count && sched_setaffinity(0, sizeof set, &set) != 0) fail(w, "pin to", "the cores");
}

/* When memory runs out, the walled process goes first. Not possible everywhere, and never needed for isolation. */
static void offer_to_oom_killer(void) {
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd < 0) return;
    if (write(fd, "1000", 4) != 4) errno = 0;
    close(fd);
}

/* ---------------------------------------------------------------------------------------------- privileges */

static void drop_privileges(const struct wall *w) {
    for (int cap = 0; cap < 64; cap++)
        if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) != 0 && errno == EPERM && w->mode != MODE_PLAIN) fail(w, "drop", "capabilities");
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    if (w->uid != getuid()) {
        if (setgroups(0, NULL) != 0) fail(w, "drop", "groups");
        if (setresgid(w->gid, w->gid, w->gid) != 0 || setresuid(w->uid, w->uid, w->uid) != 0) fail(w, "become", "an unprivileged user");
    }
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct none[2] = {{0, 0, 0}, {0, 0, 0}};
    if (syscall(SYS_capset, &head, none) != 0) fail(w, "drop", "capabilities");
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) fail(w, "set", "no_new_privs");
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0) fail(w, "set", "the parent's death signal"); /* last: a change of user clears it */
}

/* ---------------------------------------------------------------------------------------------- descriptors and start */

static void send_ready(const struct wall *w, int folder) {
    char text[] = "ready";
    union {
        char space[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {{0}};
    struct iovec part = {text, sizeof text - 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof control.space};
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &folder, sizeof(int));
    if (sendmsg(w->status, &message, MSG_NOSIGNAL) < 0) _exit(120);
}

/* The judge answers only now that its death kills this process: one that is gone already never answers. */
static void await_judge(const struct wall *w) {
    char answer;
    int folder = open(w->scratch, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0 || chdir(w->scratch) != 0) fail(w, "enter", w->scratch);
    send_ready(w, folder);
    close(folder);
    if (recv(w->status, &answer, 1, 0) != 1) _exit(120);
}

static int park(const struct wall *w, int fd) {
    int high = fcntl(fd, F_DUPFD_CLOEXEC, HIGH);
    if (high < 0) fail(w, "keep", "a descriptor");
    return high;
}

static void arrange_descriptors(struct wall *w) {
    int high[MAX_KEPT];
    w->status = park(w, w->status);
    for (int i = 0; i < w->kept_count; i++) high[i] = park(w, w->kept[i]);
    for (int i = 0; i < w->kept_count; i++)
        if (dup2(high[i], 3 + i) < 0) fail(w, "keep", "a descriptor");
    if (syscall(SYS_close_range, 3 + w->kept_count, ~0u, 4 /* CLOSE_RANGE_CLOEXEC */) == 0) return;
    for (int fd = 3 + w->kept_count; fd < 4096; fd++) fcntl(fd, F_SETFD, FD_CLOEXEC);
}

/* Puts the path at a random page, so that the runner's filter can tell this exec from any later one. */
static const char *hide(const struct wall *w, const char *path) {
    uint64_t draw;
    if (strlen(path) >= 4096) errno = ENAMETOOLONG, fail(w, "start", path);
    for (int tries = 0; tries < 64; tries++) {
        if (getrandom(&draw, sizeof draw, 0) != (ssize_t)sizeof draw) break;
        void *want = (void *)(uintptr_t)(0x100000000000ull + ((draw & 0x3ffffffffull) << 12));
        char *page = mmap(want, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED) break;
        if (page == want) return strcpy(page, path);
        munmap(page, 4096);
    }
    fail(w, "draw an address for", path);
}

static void live(struct wall *w) {
    offer_to_oom_killer();
    allow_pinning(w);
    if (w->mode != MODE_PLAIN) view_build(w);
    if (setsid() < 0 && w->mode == MODE_PLAIN) fail(w, "start", "a session");
    umask(077);
    pin(w);
    /* Opened before the user changes: without a view of its own the paths may be closed to others. */
    int rules = landlock_rules(w), file = w->mode == MODE_PLAIN ? open(w->argv[0], O_PATH | O_CLOEXEC) : -1;
    if (w->mode == MODE_PLAIN && file < 0) fail(w, "start", w->argv[0]);
    drop_privileges(w);
    await_judge(w);
    landlock_apply(w, rules);
    if (file >= 0) file = park(w, file);
    arrange_descriptors(w);
    w->executable = hide(w, file >= 0 ? "" : w->argv[0]);
    set_limits(w);
    filter_apply(w);
    syscall(SYS_execveat, file >= 0 ? file : AT_FDCWD, w->executable, w->argv, environ, file >= 0 ? AT_EMPTY_PATH : 0);
    fail(w, "start", w->argv[0]);
}

/* Without a PID namespace nothing dies with the judge by itself: wait for its end of the pipe, then end the whole group. */
static void keep(const struct wall *w, pid_t walled) {
    char byte;
    for (int fd = 0; fd < 3; fd++) close(fd);
    close(w->status);
    for (int i = 0; i < w->kept_count; i++) close(w->kept[i]);
    while (read(w->life, &byte, 1) < 0 && errno == EINTR) {}
    kill(-walled, SIGKILL);
}

static int probe(void) {
    printf("landlock %d\nseccomp %d\n", landlock_abi(), filter_available());
    return 0;
}

/* Clones the walled process; there it does not return. It begins when its process id is on its way to the judge, so that whatever
   goes wrong in it the judge knows whom to reap. */
static pid_t start(struct wall *w) {
    int told[2];
    char text[32];
    if (pipe2(told, O_CLOEXEC) != 0) fail(w, "make", "a pipe");
    long walled = syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);
    if (walled < 0) fail(w, "start", "a process");
    if (walled == 0) {
        close(told[1]);
        if (read(told[0], text, 1) < 0) _exit(120);
        close(told[0]);
        live(w);
    }
    snprintf(text, sizeof text, "pid %ld", walled);
    if (send(w->status, text, strlen(text), MSG_NOSIGNAL) < 0) _exit(120);
    close(told[0]), close(told[1]);
    return (pid_t)walled;
}

int main(int argc, char **argv) {
    static struct wall w = {.status = -1, .life = -1, .mode = MODE_PLAIN, .profile = PROFILE_RUNNER};
    if (argc == 2 && !strcmp(argv[1], "--probe")) return probe();
    options(&w, argc, argv);
    make_namespaces(&w);
    pid_t walled = start(&w);
    if (w.mode == MODE_PLAIN) keep(&w, walled);
    return 0;
}
