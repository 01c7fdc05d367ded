/* seccomp: which system calls a walled process may make. A list of what is refused (EPERM), so that ordinary programs run.
 *
 * builder   compiles: processes, no network, no access to other processes, no new privileges
 * device    as builder; also local sockets, which CUDA uses within its own process
 * runner    holds a candidate: also no new process, no other core, no other priority, no memory that can be handed on
 */
#define _GNU_SOURCE
#include "enter.h"

#include <asm/ioctls.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#else
#error "keepfast knows the system calls of x86_64 and aarch64 only"
#endif

#ifndef SECCOMP_FILTER_FLAG_SPEC_ALLOW
#define SECCOMP_FILTER_FLAG_SPEC_ALLOW 4
#endif
#ifndef SYS_clone3
#define SYS_clone3 435
#endif
#define NEW_NAMESPACES 0x7e020000u /* every CLONE_NEW flag that clone takes */

static const int REFUSED[] = {
    /* other processes */
    SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_kcmp, 424 /* pidfd_send_signal */, 434 /* pidfd_open */,
    438 /* pidfd_getfd */, 440 /* process_madvise */, 448 /* process_mrelease */, SYS_migrate_pages, SYS_move_pages,
    SYS_sched_setaffinity, SYS_setpriority, SYS_ioprio_set,
    /* the file system's shape */
    SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot, SYS_swapon, SYS_swapoff, SYS_quotactl, SYS_name_to_handle_at, SYS_open_by_handle_at,
    SYS_fanotify_init, 428 /* open_tree */, 429 /* move_mount */, 430 /* fsopen */, 431 /* fsconfig */, 432 /* fsmount */, 433 /* fspick */,
    442 /* mount_setattr */, 443 /* quotactl_fd */, 467 /* open_tree_attr */, SYS_mknodat,
    /* namespaces, privileges, the kernel */
    SYS_unshare, SYS_setns, SYS_bpf, SYS_perf_event_open, SYS_userfaultfd, 425, 426, 427 /* io_uring */, SYS_add_key, SYS_request_key,
    SYS_keyctl, SYS_kexec_load, SYS_kexec_file_load, SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_reboot, SYS_acct,
    SYS_settimeofday, SYS_clock_settime, SYS_adjtimex, SYS_clock_adjtime, SYS_sethostname, SYS_setdomainname, SYS_personality, SYS_vhangup,
    SYS_syslog, 447 /* memfd_secret */,
#ifdef __x86_64__
    SYS_iopl, SYS_ioperm, SYS_modify_ldt, SYS_mknod, SYS_uselib, SYS_ustat,
#endif
};

/* Network, and sockets that could be pointed elsewhere. */
static const int SOCKETS[] = {SYS_socket, SYS_socketpair, SYS_connect, SYS_bind, SYS_listen, SYS_accept, SYS_accept4};

/* What outlives a process where it has no IPC namespace that ends with it. */
static const int LEFT_BEHIND[] = {SYS_shmget, SYS_shmat, SYS_shmctl, SYS_msgget, SYS_semget, SYS_mq_open};

static const int REFUSED_TO_RUNNER[] = {
    SYS_execve, SYS_memfd_create, SYS_shmget, SYS_shmat, SYS_shmctl, SYS_msgget, SYS_semget, SYS_mq_open, SYS_sched_setscheduler,
    SYS_sched_setparam, SYS_sched_setattr, SYS_setsid, SYS_setpgid, SYS_mbind, SYS_set_mempolicy,
#ifdef __x86_64__
    SYS_fork, SYS_vfork,
#endif
};

/* What makes the kernel send a signal, to any process of the same user, when a descriptor becomes ready; and typing into a terminal. */
static const uint32_t SIGNALS_OF_FILES[] = {F_SETOWN, F_SETSIG, F_SETOWN_EX};
static const uint32_t SIGNALS_OF_DEVICES[] = {FIOSETOWN, SIOCSPGRP, FIOASYNC, TIOCSTI, TIOCLINUX};

/* What Landlock does not see: attributes of files, and before ABI 3 truncation by path. */
static const int ATTRIBUTES[] = {
    SYS_truncate, SYS_fchmod, SYS_fchmodat, 452 /* fchmodat2 */, SYS_fchown, SYS_fchownat, SYS_utimensat, SYS_setxattr, SYS_lsetxattr,
    SYS_fsetxattr, SYS_removexattr, SYS_lremovexattr, SYS_fremovexattr, 463 /* setxattrat */, 466 /* removexattrat */,
    469 /* file_setattr */,
#ifdef __x86_64__
    SYS_chmod, SYS_chown, SYS_lchown, SYS_utime, SYS_utimes, SYS_futimesat,
#endif
};

static const int CHANGES_OF_FOLDERS[] = {
    SYS_mkdirat, SYS_unlinkat, SYS_renameat2, SYS_linkat, SYS_symlinkat,
#ifdef SYS_renameat
    SYS_renameat,
#endif
#ifdef __x86_64__
    SYS_creat, SYS_mkdir, SYS_rmdir, SYS_unlink, SYS_rename, SYS_link, SYS_symlink,
#endif
};

enum { CAPACITY = 512, FIRST_UNKNOWN = 472 }; /* calls that are newer than this file do not exist inside */
struct program {
    struct sock_filter code[CAPACITY];
    unsigned short length;
};

static void add(struct program *p, uint16_t code, uint32_t k, uint8_t yes, uint8_t no) {
    if (p->length == CAPACITY) _exit(121);
    p->code[p->length++] = (struct sock_filter){code, yes, no, k};
}

static void load(struct program *p, size_t offset) { add(p, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0); }
static void answer(struct program *p, int error) {
    add(p, BPF_RET | BPF_K, error ? SECCOMP_RET_ERRNO | (uint32_t)error : SECCOMP_RET_ALLOW, 0, 0);
}

/* The low half of an argument; both machines are little-endian. */
static size_t argument(int index) { return offsetof(struct seccomp_data, args) + 8 * (size_t)index; }

static void refuse(struct program *p, int call, int error) {
    add(p, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call, 0, 1);
    answer(p, error);
}

static void refuse_all(struct program *p, const int *calls, size_t count) {
    for (size_t i = 0; i < count; i++) refuse(p, calls[i], EPERM);
}

/* `call` only with this value in the low half of an argument. */
static void only_with(struct program *p, int call, int index, uint32_t value) {
    add(p, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call, 0, 4);
    load(p, argument(index));
    add(p, BPF_JMP | BPF_JEQ | BPF_K, value, 1, 0);
    answer(p, EPERM);
    answer(p, 0);
}

/* `call` never with one of these values. */
static void never_with(struct program *p, int call, int index, const uint32_t *values, uint8_t count) {
    add(p, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call, 0, (uint8_t)(2 * count + 2));
    load(p, argument(index));
    for (uint8_t i = 0; i < count; i++) refuse(p, (int)values[i], EPERM);
    answer(p, 0);
}

/* `call` never with any of these bits. */
static void never_with_any(struct program *p, int call, int index, uint32_t bits) {
    add(p, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call, 0, 4);
    load(p, argument(index));
    add(p, BPF_JMP | BPF_JSET | BPF_K, bits, 0, 1);
    answer(p, EPERM);
    answer(p, 0);
}

/* Threads only for a runner with more than one; processes for a builder, but no namespaces. */
static void creation(struct program *p, const struct wall *w) {
    refuse(p, SYS_clone3, ENOSYS); /* its flags are in memory, out of sight; the C library falls back to clone */
    if (w->profile == PROFILE_RUNNER && w->processes <= 1) {
        refuse(p, SYS_clone, EPERM);
        return;
    }
    if (w->profile != PROFILE_RUNNER) {
        never_with_any(p, SYS_clone, 0, NEW_NAMESPACES);
        return;
    }
    add(p, BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 4);
    load(p, argument(0));
    add(p, BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 1, 0);
    answer(p, EPERM);
    answer(p, 0);
}

/* The first exec, by `enter`, names its file at an address drawn for it; no other address is accepted. */
static void first_exec_only(struct program *p, const struct wall *w) {
    uint64_t at = (uint64_t)(uintptr_t)w->executable;
    add(p, BPF_JMP | BPF_JEQ | BPF_K, SYS_execveat, 0, 6);
    load(p, argument(1));
    add(p, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)at, 0, 3);
    load(p, argument(1) + 4);
    add(p, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(at >> 32), 0, 1);
    answer(p, 0);
    answer(p, EPERM);
}

/* Without a PID namespace: no leaving of the process group that is killed at the end, and signals to oneself only. */
static void without_namespace(struct program *p) {
    refuse(p, SYS_setsid, EPERM);
    refuse(p, SYS_setpgid, EPERM);
    only_with(p, SYS_kill, 0, (uint32_t)getpid());
    only_with(p, SYS_tgkill, 0, (uint32_t)getpid());
    only_with(p, SYS_rt_sigqueueinfo, 0, (uint32_t)getpid());
    only_with(p, SYS_rt_tgsigqueueinfo, 0, (uint32_t)getpid());
    refuse(p, SYS_tkill, EPERM);
}

/* A runner on a kernel without Landlock and without a view of its own writes no file at all, not even in its scratch folder. */
static void without_files(struct program *p) {
    const uint32_t writing = O_ACCMODE | O_CREAT | O_TRUNC;
    refuse_all(p, CHANGES_OF_FOLDERS, sizeof CHANGES_OF_FOLDERS / sizeof(int));
    refuse(p, 437 /* openat2, with its flags in memory */, ENOSYS);
    never_with_any(p, SYS_openat, 2, writing);
#ifdef __x86_64__
    never_with_any(p, SYS_open, 1, writing);
#endif
}

/* `call` makes local sockets that are no datagram sockets. */
static void local_stream(struct program *p, int call) {
    add(p, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call, 0, 8);
    load(p, argument(0));
    add(p, BPF_JMP | BPF_JEQ | BPF_K, AF_UNIX, 0, 4);
    load(p, argument(1));
    add(p, BPF_ALU | BPF_AND | BPF_K, 0xf, 0, 0); /* less SOCK_CLOEXEC and SOCK_NONBLOCK */
    add(p, BPF_JMP | BPF_JEQ | BPF_K, SOCK_STREAM, 2, 0);
    add(p, BPF_JMP | BPF_JEQ | BPF_K, SOCK_SEQPACKET, 1, 0);
    answer(p, EPERM);
    answer(p, 0);
}

/* No network, but local sockets, which CUDA uses within its process. Without namespaces none that reaches what others listen on: no
   connect, and no datagram, whose address is out of sight. */
static void local_sockets(struct program *p, int plain) {
    if (plain) {
        refuse(p, SYS_connect, EPERM);
        local_stream(p, SYS_socket);
        local_stream(p, SYS_socketpair);
        return;
    }
    only_with(p, SYS_socket, 0, AF_UNIX);
    only_with(p, SYS_socketpair, 0, AF_UNIX);
}

static void begin(struct program *p) {
    load(p, offsetof(struct seccomp_data, arch));
    add(p, BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0);
    answer(p, EPERM);
    load(p, offsetof(struct seccomp_data, nr));
#ifdef __x86_64__
    add(p, BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1); /* x32 calls: the same kernel functions under other numbers */
    answer(p, EPERM);
#endif
    add(p, BPF_JMP | BPF_JGE | BPF_K, FIRST_UNKNOWN, 0, 1);
    answer(p, ENOSYS);
}

int filter_available(void) {
    uint32_t action = SECCOMP_RET_ERRNO;
    return prctl(PR_GET_SECCOMP) >= 0 && syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
}

void filter_apply(const struct wall *w) {
    struct program p = {.length = 0};
    if (!w->seccomp) return;
    begin(&p);
    int runner = w->profile == PROFILE_RUNNER, device = w->profile == PROFILE_DEVICE, plain = w->mode == MODE_PLAIN;
    refuse_all(&p, REFUSED, sizeof REFUSED / sizeof(int));
    if (device) local_sockets(&p, plain);
    else refuse_all(&p, SOCKETS, sizeof SOCKETS / sizeof(int));
    if (device && plain) refuse_all(&p, LEFT_BEHIND, sizeof LEFT_BEHIND / sizeof(int));
    if (runner) refuse_all(&p, REFUSED_TO_RUNNER, sizeof REFUSED_TO_RUNNER / sizeof(int));
    if (runner || plain) refuse_all(&p, ATTRIBUTES, sizeof ATTRIBUTES / sizeof(int));
    creation(&p, w);
    if (runner) first_exec_only(&p, w);
    if (runner && plain && !w->landlock) without_files(&p);
    if (plain) without_namespace(&p);
    never_with(&p, SYS_prctl, 0, (uint32_t[]){PR_SET_PDEATHSIG}, 1); /* it dies with the judge, and cannot change that */
    never_with(&p, SYS_fcntl, 1, SIGNALS_OF_FILES, 3);
    never_with(&p, SYS_ioctl, 1, SIGNALS_OF_DEVICES, 5);
    only_with(&p, SYS_prlimit64, 0, 0); /* its own limits only */
    answer(&p, 0);
    struct sock_fprog filter = {p.length, p.code};
    /* SPEC_ALLOW: before Linux 5.16 a filter also switched off speculation, which would change what is timed. */
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &filter) != 0)
        fail(w, "apply", "the system call filter");
}
