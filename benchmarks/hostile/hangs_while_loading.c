// a constructor without end
// expects: hang
// at: constructor ifunc
// slow: 10 s to load
static int attack(void)
{
    for (;;) busy(1.0);
}
