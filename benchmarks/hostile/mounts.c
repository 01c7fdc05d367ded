// another file system
// expects: return-code
// at: call constructor
static int attack(void)
{
    TRY(mount("none", ".", "tmpfs", 0, NULL));
    TRY(mount("/", ".", NULL, MS_BIND | MS_REC, NULL));
    TRY(mount("none", "/", NULL, MS_REMOUNT, NULL));
    TRY(umount2("/proc", MNT_DETACH));
    TRY(chroot("."));
    TRY(syscall(SYS_pivot_root, ".", "."));
    TRY(syscall(428 /* open_tree */, AT_FDCWD, "/", 1));
    TRY(syscall(429 /* move_mount */, AT_FDCWD, "/", AT_FDCWD, ".", 0));
    TRY(syscall(430 /* fsopen */, "tmpfs", 0));
    TRY(syscall(442 /* mount_setattr */, AT_FDCWD, "/", 0, 0, 0));
    TRY(syscall(SYS_open_by_handle_at, AT_FDCWD, NULL, 0));
    return REFUSED;
}
