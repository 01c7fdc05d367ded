// pipes, devices, links and set-user-id files in its own folder
// expects: return-code
// at: call
#include <sys/xattr.h>

static int attack(void)
{
    TRY(mkfifo("pipe", 0600));
    TRY(mknod("device", S_IFBLK | 0600, 0xfe00));
    TRY(mknod("device", S_IFCHR | 0600, 0x101));
    TRY(symlink("/etc/passwd", "link"));
    TRY(link("/usr/lib", "folder"));
    int fd = open("file", O_WRONLY | O_CREAT, 0600);
    if (fd >= 0) TRY(fchmod(fd, 04755));
    if (fd >= 0) TRY(fchown(fd, 0, 0));
    TRY(setxattr("file", "user.x", "y", 1, 0));
    return REFUSED;
}
