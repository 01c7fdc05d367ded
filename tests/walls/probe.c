/* What a hostile program would try, one attempt a subcommand. Prints "attempt=result"; 0 means that it worked, else the errno.
   The last argument is a mark by which the test finds this process in /proc. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static void say(const char *what, long result) {
    printf("%s=%d\n", what, result < 0 ? errno : 0);
    fflush(stdout);
}

static void count(const char *what, long value) {
    printf("%s=%ld\n", what, value);
    fflush(stdout);
}

static void forever(void) {
    for (;;) pause();
}

static void bomb(void) {
    long made = 0, failed = 0;
    for (int i = 0; i < 200; i++) {
        pid_t child = fork();
        if (child == 0)
            for (;;) {
                if (fork() < 0) usleep(1000);
            }
        if (child > 0) made++;
        else failed++;
    }
    count("made", made);
    count("failed", failed);
    forever();
}

static void daemonise(void) {
    pid_t child = fork();
    if (child == 0) {
        say("setsid", setsid());
        say("setpgid", setpgid(0, 0));
        if (fork() != 0) _exit(0);
        for (int fd = 0; fd < 64; fd++) close(fd);
        forever();
    }
    say("fork", child);
    if (child > 0) waitpid(child, NULL, 0);
}

static void attack(pid_t victim) {
    char byte = 0;
    struct iovec local = {&byte, 1}, remote = {(void *)0x400000, 1};
    struct rlimit none = {0, 0};
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(0, &set);
    say("attach", ptrace(PTRACE_ATTACH, victim, 0, 0));
    say("seize", ptrace(PTRACE_SEIZE, victim, 0, 0));
    say("vm_readv", process_vm_readv(victim, &local, 1, &remote, 1, 0));
    say("signal", kill(victim, 0));
    say("terminate", kill(victim, SIGTERM));
    say("queue", syscall(SYS_tgkill, victim, victim, SIGTERM));
    say("limit", prlimit(victim, RLIMIT_CPU, &none, NULL));
    say("pin", sched_setaffinity(victim, sizeof set, &set));
    say("nice", setpriority(PRIO_PROCESS, (id_t)victim, 19));
    say("pidfd", syscall(434, victim, 0));
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/mem", victim);
    say("mem", open(path, O_RDWR));
    snprintf(path, sizeof path, "/proc/%d/environ", victim);
    say("environ", open(path, O_RDONLY));
    int pipes[2];
    if (pipe(pipes) == 0) say("setown", fcntl(pipes[0], F_SETOWN, victim));
    say("setsig", fcntl(0, F_SETSIG, SIGKILL));
    say("everyone", kill(-1, SIGTERM));
}

static void write_in(const char *folder) {
    char path[4096], name[4200];
    snprintf(path, sizeof path, "%s/keepfast-hostile", folder);
    snprintf(name, sizeof name, "create %s", folder);
    say(name, open(path, O_CREAT | O_WRONLY, 0666));
    snprintf(name, sizeof name, "mkdir %s", folder);
    snprintf(path, sizeof path, "%s/keepfast-hostile-folder", folder);
    say(name, mkdir(path, 0777));
    snprintf(name, sizeof name, "link %s", folder);
    snprintf(path, sizeof path, "%s/keepfast-hostile-link", folder);
    say(name, symlink("/etc/passwd", path));
    snprintf(name, sizeof name, "node %s", folder);
    snprintf(path, sizeof path, "%s/keepfast-hostile-node", folder);
    say(name, mknod(path, S_IFCHR | 0666, 1 << 8 | 3));
}

static void change(const char *path) {
    char name[4200];
    snprintf(name, sizeof name, "write %s", path);
    say(name, open(path, O_WRONLY));
    snprintf(name, sizeof name, "truncate %s", path);
    say(name, truncate(path, 0));
    snprintf(name, sizeof name, "chmod %s", path);
    say(name, chmod(path, 0777));
    snprintf(name, sizeof name, "unlink %s", path);
    say(name, unlink(path));
}

static void read_from(const char *path) {
    char name[4200];
    snprintf(name, sizeof name, "read %s", path);
    say(name, open(path, O_RDONLY));
}

static void flood(void) {
    static char block[1 << 16];
    memset(block, 'x', sizeof block);
    for (;;)
        if (write(1, block, sizeof block) < 0) forever();
}

static void hog_memory(void) {
    long mib = 0;
    for (; mib < 1 << 20; mib++) {
        char *block = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (block == MAP_FAILED) break;
        memset(block, 1, 1 << 20);
    }
    count("mib", mib);
    say("lock", mlock(&mib, sizeof mib));
}

static void hog_disk(void) {
    static char block[1 << 16];
    long kib = 0, files = 0;
    for (int full = 0; !full && files < 100000; files++) {
        char name[32];
        snprintf(name, sizeof name, "f%ld", files);
        int fd = open(name, O_CREAT | O_WRONLY, 0600);
        if (fd < 0) break;
        for (int i = 0; i < 64; i++) {
            ssize_t wrote = write(fd, block, sizeof block);
            if (wrote < 0) full = errno == ENOSPC;
            if (wrote < (ssize_t)sizeof block) break;
            kib += 64;
        }
        close(fd);
    }
    count("kib", kib);
    count("files", files);
}

static void many_files(void) {
    long files = 0;
    for (; files < 20000; files++) {
        char name[32];
        snprintf(name, sizeof name, "f%ld", files);
        int fd = open(name, O_CREAT | O_WRONLY, 0600);
        if (fd < 0) break;
        close(fd);
    }
    count("files", files);
}

static void one_file(void) {
    static char block[1 << 16];
    long kib = 0;
    signal(SIGXFSZ, SIG_IGN);
    int fd = open("large", O_CREAT | O_WRONLY, 0600);
    while (kib < 1 << 20 && write(fd, block, sizeof block) == (ssize_t)sizeof block) kib += 64;
    count("kib", kib);
    unlink("large");
}

static void sockets(const char *abstract) {
    static const struct {
        const char *name;
        int family, type;
    } kinds[] = {{"inet", AF_INET, SOCK_STREAM}, {"inet6", AF_INET6, SOCK_DGRAM}, {"unix", AF_UNIX, SOCK_STREAM},
                 {"netlink", 16, SOCK_RAW},      {"packet", 17, SOCK_RAW},         {"vsock", 40, SOCK_STREAM}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) say(kinds[i].name, socket(kinds[i].family, kinds[i].type, 0));
    int pair[2];
    say("pair", socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    strncpy(to.sun_path + 1, abstract, sizeof to.sun_path - 2);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(abstract));
    say("connect", connect(3, (struct sockaddr *)&to, size)); /* descriptor 3 is a datagram socket that was handed in */
    say("bind", bind(3, (struct sockaddr *)&to, size));
}

static void local(const char *outside) {
    struct sockaddr_un ours = {.sun_family = AF_UNIX}, theirs = ours;
    sprintf(ours.sun_path + 1, "keepfast-inside-%d", getpid()); /* without a network namespace these names are the machine's */
    strncpy(theirs.sun_path + 1, outside, sizeof theirs.sun_path - 2);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(ours.sun_path + 1));
    socklen_t other = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(outside));
    int pair[2] = {-1, -1}, door = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    say("stream", socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
    if (bind(door, (struct sockaddr *)&ours, size) == 0) say("listen", listen(door, 1));
    say("outside", connect(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&theirs, other));
    say("datagram", socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
    int letter = socket(AF_UNIX, SOCK_DGRAM, 0);
    if (letter < 0) errno = EPERM;
    say("send", letter < 0 ? -1 : sendto(letter, "x", 1, 0, (struct sockaddr *)&theirs, other));
}

static void control(const char *node) {
    int entropy, fd = open(node, O_RDWR);
    say("open", fd);
    if (fd >= 0) say("count", ioctl(fd, 0x80045200 /* RNDGETENTCNT */, &entropy));
}

static void limits(void) {
    struct rlimit r;
    getrlimit(RLIMIT_AS, &r), count("addresses", (long)r.rlim_cur);
    getrlimit(RLIMIT_DATA, &r), count("data", (long)r.rlim_cur);
    getrlimit(RLIMIT_NOFILE, &r), count("files", (long)r.rlim_cur);
    getrlimit(RLIMIT_MEMLOCK, &r), count("pinned", (long)r.rlim_cur);
    void *map = mmap(NULL, 1l << 40, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    say("reserve", map == MAP_FAILED ? -1 : 0);
}

static void kernel_calls(void) {
    char stack[64];
    say("unshare", unshare(CLONE_NEWUSER));
    say("mount", mount("none", ".", "tmpfs", 0, NULL));
    say("umount", umount2("/proc", MNT_DETACH));
    say("chroot", chroot("."));
    say("setns", setns(0, 0));
    say("bpf", syscall(SYS_bpf, 0, stack, 8));
    say("perf", syscall(SYS_perf_event_open, stack, 0, -1, -1, 0));
    say("io_uring", syscall(425, 1, stack));
    say("userfaultfd", syscall(SYS_userfaultfd, 1));
    say("keyctl", syscall(SYS_keyctl, 0, -3, 0));
    say("add_key", syscall(SYS_add_key, "user", "x", "y", 1, -3));
    say("memfd_secret", syscall(447, 0));
    say("fsopen", syscall(430, "tmpfs", 0));
    say("open_tree", syscall(428, AT_FDCWD, "/", 1));
    say("by_handle", syscall(SYS_open_by_handle_at, 0, stack, 0));
    say("personality", syscall(SYS_personality, 0x0040000));
    say("kexec", syscall(SYS_kexec_load, 0, 0, 0, 0));
    say("module", syscall(SYS_init_module, stack, 1, ""));
    say("reboot", syscall(SYS_reboot, 0, 0, 0, 0));
    say("deathsig", prctl(PR_SET_PDEATHSIG, 0));
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct caps[2];
    int has = syscall(SYS_capget, &head, caps) != 0 || caps[0].effective | caps[0].permitted | caps[1].effective | caps[1].permitted;
    errno = EPERM, say("capabilities", has ? 0 : -1);
    say("setuid", setuid(0));
    say("newest", syscall(600));
    say("typing", ioctl(0, TIOCSTI, "x"));
#ifdef __x86_64__
    say("x32", syscall(0x40000000 | 39));
    long old;
    __asm__ volatile("int $0x80" : "=a"(old) : "a"(20L) : "memory", "r8", "r9", "r10", "r11"); /* getpid of the 32-bit table */
    errno = (int)-old, say("int80", old);
    say("iopl", syscall(SYS_iopl, 3));
#endif
}

static void *thread(void *unused) { return unused; }

static void processes(const char *self) {
    pthread_t made;
    char *argv[] = {(char *)self, "nothing", "mark", NULL};
    say("clone", syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
    say("clone3", syscall(435, 0, 0));
#ifdef __x86_64__
    say("fork", syscall(SYS_fork));
    long child = syscall(SYS_vfork);
    if (child == 0) _exit(0);
    say("vfork", child);
#endif
    errno = pthread_create(&made, NULL, thread, NULL);
    say("thread", errno ? -1 : 0);
    if (!errno) pthread_join(made, NULL);
    say("memfd", memfd_create("x", 0));
    say("shmget", shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600));
    say("shm_open", shm_open("/keepfast-hostile", O_CREAT | O_RDWR, 0600));
    say("setsid", setsid());
    struct sched_param idle = {0};
    say("scheduler", sched_setscheduler(0, SCHED_BATCH, &idle));
    say("nice", setpriority(PRIO_PROCESS, 0, 5));
    say("execveat", syscall(SYS_execveat, AT_FDCWD, self, argv, environ, 0));
    say("execve", execve(self, argv, environ));
}

static void pinning(void) {
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set);
    count("cores", CPU_COUNT(&set));
    count("on0", CPU_ISSET(0, &set));
    for (int i = 0; i < 64; i++) CPU_SET(i, &set);
    say("repin", sched_setaffinity(0, sizeof set, &set));
}

static void spoil(void) { /* 3: a buffer to read, 4: a buffer to write, both memfds */
    char path[64];
    for (int fd = 3; fd < 5; fd++) {
        char name[32];
        snprintf(name, sizeof name, "shrink%d", fd), say(name, ftruncate(fd, 0));
        snprintf(name, sizeof name, "grow%d", fd), say(name, ftruncate(fd, 1 << 20));
        snprintf(name, sizeof name, "write%d", fd), say(name, pwrite(fd, "spoilt", 6, 0));
        snprintf(name, sizeof name, "punch%d", fd), say(name, fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096));
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        int again = open(path, O_RDWR);
        snprintf(name, sizeof name, "rewrite%d", fd), say(name, again < 0 ? -1 : pwrite(again, "spoilt", 6, 0));
        void *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, again < 0 ? fd : again, 0);
        snprintf(name, sizeof name, "map%d", fd), say(name, map == MAP_FAILED ? -1 : 0);
    }
}

static void descriptors(void) {
    long open_ones = 0;
    for (int fd = 0; fd < 4096; fd++)
        if (fcntl(fd, F_GETFD) >= 0) open_ones++;
    count("open", open_ones);
    for (int fd = 0; fd < 4096; fd++) close(fd);
    _exit(7);
}

static void outlive(void) {
    for (int i = 0; i < 3; i++)
        if (fork() == 0) break;
    signal(SIGTERM, SIG_IGN), signal(SIGHUP, SIG_IGN), signal(SIGINT, SIG_IGN);
    count("pid", getpid());
    forever();
}

static int pick(int argc, char **argv) {
    const char *what = argv[1];
    if (!strcmp(what, "bomb")) bomb();
    else if (!strcmp(what, "daemonise")) daemonise();
    else if (!strcmp(what, "attack")) attack(atoi(argv[2]));
    else if (!strcmp(what, "write")) for (int i = 2; i < argc - 1; i++) write_in(argv[i]);
    else if (!strcmp(what, "change")) for (int i = 2; i < argc - 1; i++) change(argv[i]);
    else if (!strcmp(what, "read")) for (int i = 2; i < argc - 1; i++) read_from(argv[i]);
    else if (!strcmp(what, "flood")) flood();
    else if (!strcmp(what, "memory")) hog_memory();
    else if (!strcmp(what, "disk")) hog_disk();
    else if (!strcmp(what, "files")) many_files();
    else if (!strcmp(what, "file")) one_file();
    else if (!strcmp(what, "sockets")) sockets(argv[2]);
    else if (!strcmp(what, "local")) local(argv[2]);
    else if (!strcmp(what, "control")) control(argv[2]);
    else if (!strcmp(what, "limits")) limits();
    else if (!strcmp(what, "kernel")) kernel_calls();
    else if (!strcmp(what, "processes")) processes(argv[0]);
    else if (!strcmp(what, "pinning")) pinning();
    else if (!strcmp(what, "spoil")) spoil();
    else if (!strcmp(what, "descriptors")) descriptors();
    else if (!strcmp(what, "outlive")) outlive();
    else if (!strcmp(what, "sleep")) count("pid", getpid()), forever();
    else if (!strcmp(what, "spin")) for (;;) {}
    else if (!strcmp(what, "abort")) abort();
    else if (!strcmp(what, "crash")) raise(SIGSEGV), *(volatile int *)0 = 1;
    else if (!strcmp(what, "environment")) for (char **v = environ; *v; v++) puts(*v);
    else if (strcmp(what, "nothing") != 0) return 2;
    return 0;
}

int main(int argc, char **argv) { return argc < 3 ? 2 : pick(argc, argv); }
