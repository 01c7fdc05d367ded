"""Model pages, and beside each its mathematics as a short reference in NumPy. Nothing of keepfast imports them; agents read them."""
