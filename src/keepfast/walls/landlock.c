/* Landlock: which files a walled process may open, whatever its view of the file system and its user are.
 * The constants are written out because the headers of older systems lack them; each is the kernel's ABI (linux/landlock.h).
 */
#define _GNU_SOURCE
#include "enter.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_add_rule 445
#define SYS_landlock_restrict_self 446
#endif

#define EXECUTE (1ull << 0)
#define WRITE_FILE (1ull << 1)
#define READ_FILE (1ull << 2)
#define READ_DIR (1ull << 3)
#define REMOVE_DIR (1ull << 4)
#define REMOVE_FILE (1ull << 5)
#define MAKE_DIR (1ull << 7)
#define MAKE_REG (1ull << 8)
#define REFER (1ull << 13)
#define TRUNCATE (1ull << 14)
#define IOCTL_DEV (1ull << 15)
#define OF_FILES (EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV)

struct ruleset {
    uint64_t files, network, scoped;
};
struct beneath {
    uint64_t allowed;
    int32_t parent;
} __attribute__((packed));

int landlock_abi(void) {
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, 1);
    return abi > 0 ? (int)abi : 0;
}

static uint64_t all_of_files(int abi) {
    uint64_t all = (1ull << 13) - 1;
    if (abi >= 2) all |= REFER;
    if (abi >= 3) all |= TRUNCATE;
    if (abi >= 5) all |= IOCTL_DEV;
    return all;
}

static int create(int abi) {
    struct ruleset r = {.files = all_of_files(abi)};
    size_t size = sizeof r.files;
    if (abi >= 4) r.network = 3, size = 2 * sizeof r.files; /* bind and connect, TCP */
    if (abi >= 6) r.scoped = 3, size = sizeof r;            /* abstract sockets, signals */
    return (int)syscall(SYS_landlock_create_ruleset, &r, size, 0);
}

static void allow(const struct wall *w, int rules, const char *path, uint64_t access) {
    struct beneath rule = {.allowed = access & all_of_files(w->landlock), .parent = open(path, O_PATH | O_CLOEXEC)};
    struct stat kind;
    if (rule.parent < 0 || fstat(rule.parent, &kind) != 0) fail(w, "open", path);
    if (!S_ISDIR(kind.st_mode)) rule.allowed &= OF_FILES;
    if (syscall(SYS_landlock_add_rule, rules, 1, &rule, 0) != 0) fail(w, "allow", path);
    close(rule.parent);
}

/* The loader that the kernel starts for a dynamic program: it is executed too. Empty for a static one. */
static void interpreter(const char *program, char *out, size_t size) {
    Elf64_Ehdr head;
    Elf64_Phdr part;
    int fd = open(program, O_RDONLY | O_CLOEXEC);
    out[0] = 0;
    if (fd < 0) return;
    if (read(fd, &head, sizeof head) == (ssize_t)sizeof head && memcmp(head.e_ident, ELFMAG, SELFMAG) == 0)
        for (int i = 0; i < head.e_phnum && !out[0]; i++) {
            if (pread(fd, &part, sizeof part, (off_t)(head.e_phoff + (uint64_t)i * sizeof part)) != (ssize_t)sizeof part) break;
            if (part.p_type != PT_INTERP || part.p_filesz == 0 || part.p_filesz > size) continue;
            if (pread(fd, out, part.p_filesz, (off_t)part.p_offset) != (ssize_t)part.p_filesz) out[0] = 0;
            out[part.p_filesz - 1] = 0;
        }
    close(fd);
}

/* A compiler starts other programs of its folders; a runner starts once and executes nothing else. */
static void allow_programs(const struct wall *w, int rules) {
    char loader[PATH_MAX];
    if (w->profile != PROFILE_RUNNER) return;
    allow(w, rules, w->argv[0], EXECUTE | READ_FILE);
    interpreter(w->argv[0], loader, sizeof loader);
    if (loader[0]) allow(w, rules, loader, EXECUTE | READ_FILE);
}

/* Without a view of its own only a process with a device sees /proc, the machine's: CUDA does not start without. What others hold
 * there (memory, environment, files) stays closed: Landlock lets nobody look into processes outside. */
static int sees_system(const struct wall *w) { return w->mode != MODE_PLAIN || w->profile == PROFILE_DEVICE; }

int landlock_rules(const struct wall *w) {
    if (w->landlock == 0) return -1;
    int device = w->profile == PROFILE_DEVICE;
    uint64_t readable = READ_FILE | READ_DIR | (w->profile != PROFILE_RUNNER ? EXECUTE : 0);
    uint64_t scratch = WRITE_FILE | READ_FILE | READ_DIR | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | REFER | TRUNCATE;
    int rules = create(w->landlock); /* close-on-exec by itself */
    if (rules < 0) fail(w, "create", "Landlock rules");
    for (size_t i = 0; i < w->reads; i++) allow(w, rules, w->read[i], readable);
    for (size_t i = 0; sees_system(w) && READABLE_SYSTEM[i]; i++)
        if (access(READABLE_SYSTEM[i], F_OK) == 0) allow(w, rules, READABLE_SYSTEM[i], READ_FILE | READ_DIR);
    if (device && w->mode != MODE_PLAIN && access("/proc/self", F_OK) == 0) allow(w, rules, "/proc", READ_FILE | READ_DIR | WRITE_FILE | TRUNCATE);
    /* Python lists the folder in which a package lies. The view holds only what was asked for, so its names are no secret. */
    if (device && w->mode != MODE_PLAIN) allow(w, rules, "/", READ_DIR);
    for (size_t i = 0; DEVICES[i]; i++) allow(w, rules, DEVICES[i], READ_FILE | WRITE_FILE);
    for (size_t i = 0; i < w->devices; i++) allow(w, rules, w->device[i], READ_FILE | WRITE_FILE | IOCTL_DEV);
    allow(w, rules, w->scratch, scratch | (device ? EXECUTE : 0)); /* what Triton compiles there it also loads */
    allow_programs(w, rules);
    return rules;
}

void landlock_apply(const struct wall *w, int rules) {
    if (rules < 0) return;
    if (syscall(SYS_landlock_restrict_self, rules, 0) != 0) fail(w, "apply", "Landlock rules");
    close(rules);
}
