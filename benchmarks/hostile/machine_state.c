// the machine itself: restart, modules, swap, name, ports
// expects: return-code
// at: call
static int attack(void)
{
    TRY(syscall(SYS_reboot, 0xfee1dead, 672274793, 0x1234567, NULL));
    TRY(syscall(SYS_init_module, "", 0, ""));
    TRY(syscall(SYS_finit_module, 3, "", 0));
    TRY(syscall(SYS_delete_module, "x", 0));
    TRY(syscall(SYS_kexec_load, 0, 0, NULL, 0));
    TRY(swapon("file", 0));
    TRY(acct("file"));
    TRY(sethostname("owned", 5));
    TRY(syscall(SYS_syslog, 3, NULL, 0));
    TRY(personality(ADDR_NO_RANDOMIZE));
    TRY(vhangup());
#ifdef __x86_64__
    TRY(syscall(SYS_iopl, 3));
    TRY(syscall(SYS_ioperm, 0, 8, 1));
    TRY(syscall(SYS_modify_ldt, 1, NULL, 0));
#endif
    return REFUSED;
}
