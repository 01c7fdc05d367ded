"""What one function of a running program is called with: counted and sampled in the program's own processes, read and described here.

`injected/` is copied beside the program and is stdlib only; everything else runs in keepfast. Knows neither tasks nor judges.
"""
