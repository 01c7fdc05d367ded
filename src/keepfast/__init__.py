"""keepfast: keep only what is faster, and prove it. Importing this package does nothing else."""

__version__ = "0.1.0"
