"""The judge: the only part that decides. Trusted; never loads, imports or parses as code anything of a candidate."""
