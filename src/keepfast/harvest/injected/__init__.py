"""Files that are copied to a folder of their own and put first on PYTHONPATH of somebody else's program: nothing of keepfast is there."""
