// what belongs to the machine and its users
// expects: return-code
// at: call constructor
static int attack(void)
{
    const char *names[] = {"/etc/shadow", "/etc/passwd", "/etc/hostname", "/etc/ssh", "/root", "/home", HOME "/.ssh", HOME "/.netrc", HOME "/.bash_history",
                           "/var/log", "/var/lib", "/run", "/boot", "/dev/mem", "/dev/kmsg", "/dev/vda", "/dev/sda", "/dev/ptmx", "/dev/tty",
                           "/proc/kcore", "/proc/kmsg", "/proc/kallsyms-", "/sys/kernel", "/sys/firmware", "/proc/1/root/etc/passwd", "/proc/self/root/etc/passwd"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) TRY(open(names[i], O_RDONLY));
    return REFUSED;
}
