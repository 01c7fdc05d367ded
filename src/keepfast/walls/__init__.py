"""The walls: what keeps a compiler or a candidate from touching anything but its own scratch folder."""
