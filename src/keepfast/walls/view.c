/* The file system inside the walls: an empty root, the listed paths bound into it read-only, four device nodes and those asked for,
 * a fresh /proc, and a scratch folder in memory with a quota. What is not listed does not exist there.
 *
 * mount_setattr only adds flags, so it also works in a user namespace, where flags of the outer mounts are locked.
 */
#define _GNU_SOURCE
#include "enter.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif
#define OLD "/.outside"
#define CARDS "/proc/driver/nvidia"

const char *const DEVICES[] = {"/dev/null", "/dev/zero", "/dev/full", "/dev/urandom", NULL};
const char *const READABLE_SYSTEM[] = {"/proc", "/sys/devices/system/cpu", NULL};

struct attributes {
    uint64_t set, clear, propagation, userns_fd;
};
enum { READ_ONLY = 1, NO_SUID = 2, NO_DEVICES = 4, RECURSIVE = 0x8000 };

static int restrict_mount(const char *path, uint64_t flags) {
    struct attributes a = {.set = flags};
    if (syscall(SYS_mount_setattr, AT_FDCWD, path, RECURSIVE, &a, sizeof a) == 0) return 0;
    if (errno != ENOSYS) return -1;
    struct statvfs outer; /* before Linux 5.12: one mount at a time, and the outer flags must be given again */
    if (statvfs(path, &outer) != 0) return -1;
    unsigned long all = MS_REMOUNT | MS_BIND | (outer.f_flag & (MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_NOATIME));
    if (flags & READ_ONLY) all |= MS_RDONLY;
    if (flags & NO_SUID) all |= MS_NOSUID;
    if (flags & NO_DEVICES) all |= MS_NODEV;
    return mount("none", path, NULL, all, NULL);
}

static void make_parents(const struct wall *w, const char *path) {
    char part[PATH_MAX];
    if (strlen(path) >= sizeof part) errno = ENAMETOOLONG, fail(w, "make folder", path);
    strcpy(part, path);
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        if (mkdir(part, 0755) != 0 && errno != EEXIST) fail(w, "make folder", part);
        *slash = '/';
    }
}

static void make_point(const struct wall *w, const char *path, int folder) {
    make_parents(w, path);
    if (folder) {
        if (mkdir(path, 0755) != 0 && errno != EEXIST) fail(w, "make folder", path);
        return;
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0) fail(w, "make file", path);
    close(fd);
}

static void bind_path(const struct wall *w, const char *path, uint64_t flags) {
    char source[PATH_MAX];
    struct stat kind;
    if ((size_t)snprintf(source, sizeof source, OLD "%s", path) >= sizeof source) errno = ENAMETOOLONG, fail(w, "bind", path);
    if (stat(source, &kind) != 0) fail(w, "find", path);
    make_point(w, path, S_ISDIR(kind.st_mode));
    if (mount(source, path, NULL, MS_BIND | MS_REC, NULL) != 0) fail(w, "bind", path);
    if (restrict_mount(path, flags) != 0) fail(w, "make read-only", path);
}

static void enter_empty_root(const struct wall *w) {
    if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) != 0) fail(w, "detach mounts of", "/");
    const char *options = "size=1m,nr_inodes=4096,mode=755";
    if (mount("keepfast", w->scratch, "tmpfs", MS_NOSUID | MS_NODEV, options) != 0) fail(w, "mount tmpfs on", w->scratch);
    if (chdir(w->scratch) != 0 || mkdir("." OLD, 0700) != 0) fail(w, "make folder", OLD);
    if (syscall(SYS_pivot_root, ".", "." OLD) != 0 || chdir("/") != 0) fail(w, "change root to", w->scratch);
}

static void leave_outside(const struct wall *w) {
    if (umount2(OLD, MNT_DETACH) != 0) fail(w, "detach", "the outer root");
    if (rmdir(OLD) != 0) fail(w, "remove", OLD);
    struct attributes a = {.set = READ_ONLY};
    if (syscall(SYS_mount_setattr, AT_FDCWD, "/", 0, &a, sizeof a) == 0) return;
    if (mount("none", "/", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL) != 0) fail(w, "make read-only", "/");
}

static void mount_scratch(const struct wall *w) {
    char options[128];
    int device = w->profile == PROFILE_DEVICE, files = device ? 65536 : 8192;
    unsigned long flags = MS_NOSUID | MS_NODEV | (device ? 0 : MS_NOEXEC); /* Triton loads what it compiled there */
    unsigned long long size = w->scratch_bytes;
    make_point(w, w->scratch, 1);
    snprintf(options, sizeof options, "size=%llu,nr_inodes=%d,mode=700,uid=%u,gid=%u", size, files, w->uid, w->gid);
    if (mount("scratch", w->scratch, "tmpfs", flags, options) != 0) fail(w, "mount scratch on", w->scratch);
}

static void mount_proc(const struct wall *w) {
    /* CUDA names its threads there: on a read-only /proc cuInit answers 304. What else can be written is its own, or root's. */
    unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOEXEC | (w->profile == PROFILE_DEVICE ? 0 : MS_RDONLY);
    make_point(w, "/proc", 1);
    if (mount("proc", "/proc", "proc", flags, NULL) == 0) return;
    /* Where the outer /proc is masked (some containers) a user namespace may not mount its own: then there is none inside. */
    if (errno != EPERM) fail(w, "mount", "/proc");
}

/* What the driver says of its cards, as it is outside: a container may have replaced it. */
static void bind_cards(const struct wall *w) {
    if (w->profile != PROFILE_DEVICE || access(OLD CARDS, F_OK) != 0 || access(CARDS, F_OK) != 0) return;
    bind_path(w, CARDS, READ_ONLY | NO_SUID | NO_DEVICES);
}

static void add_links(const struct wall *w) {
    for (size_t i = 0; i < w->link_count; i++) {
        make_parents(w, w->links[i].path);
        if (symlink(w->links[i].target, w->links[i].path) != 0 && errno != EEXIST) fail(w, "link", w->links[i].path);
    }
}

void view_build(const struct wall *w) {
    enter_empty_root(w);
    for (size_t i = 0; i < w->reads; i++) bind_path(w, w->read[i], READ_ONLY | NO_SUID | NO_DEVICES);
    add_links(w);
    for (size_t i = 0; DEVICES[i]; i++) bind_path(w, DEVICES[i], NO_SUID);
    for (size_t i = 0; i < w->devices; i++) bind_path(w, w->device[i], NO_SUID);
    if (access(OLD "/sys/devices/system/cpu", R_OK) == 0) bind_path(w, "/sys/devices/system/cpu", READ_ONLY | NO_SUID | NO_DEVICES);
    mount_proc(w);
    bind_cards(w);
    mount_scratch(w);
    leave_outside(w);
}
