/* What the parts of `enter` share: the description of one wall, and how a step says that it failed. */
#ifndef KEEPFAST_ENTER_H
#define KEEPFAST_ENTER_H

#include <stddef.h>
#include <stdint.h>

enum mode { MODE_ROOT, MODE_USER, MODE_PLAIN }; /* namespaces as root, in a user namespace, or none */
enum profile { PROFILE_BUILDER, PROFILE_RUNNER, PROFILE_DEVICE };
enum { MAX_PATHS = 256, MAX_KEPT = 16, MAX_CORES = 1024, MAX_DEVICES = 64 };

struct link {
    const char *path, *target;
};

struct wall {
    int status; /* socket to the judge */
    int life;   /* pipe that ends when the judge does; read by the keeper, MODE_PLAIN only */
    enum mode mode;
    enum profile profile;
    int landlock; /* ABI, 0: not used */
    int seccomp;  /* 0: not used */
    unsigned uid, gid;
    const char *scratch;
    uint64_t scratch_bytes, memory_bytes, file_bytes, processes, tasks, cpu_seconds;
    const char *read[MAX_PATHS]; /* real paths, none inside another */
    size_t reads;
    struct link links[MAX_PATHS]; /* symbolic links on the way to them */
    size_t link_count;
    const char *device[MAX_DEVICES]; /* device nodes that it may read, write and control */
    size_t devices;
    int kept[MAX_KEPT], kept_count; /* descriptors that become 3, 4, ... */
    int cores[MAX_CORES], core_count;
    char **argv;
    const char *executable; /* argv[0] at an address that no one can guess, see filter.c */
};

/* Tells the judge which step failed and why (errno), and ends the process. */
void fail(const struct wall *w, const char *step, const char *object) __attribute__((noreturn));

void view_build(const struct wall *w);
int landlock_rules(const struct wall *w); /* -1: not used */
void landlock_apply(const struct wall *w, int rules);
int landlock_abi(void);
void filter_apply(const struct wall *w);
int filter_available(void);

extern const char *const DEVICES[];         /* the device nodes that everyone gets, ends with NULL */
extern const char *const READABLE_SYSTEM[]; /* what every program may read, ends with NULL */

#endif
