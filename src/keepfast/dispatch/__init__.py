"""Where a champion wins, said with intervals (`certify`), and a package that uses it there and nowhere else (`export`)."""
