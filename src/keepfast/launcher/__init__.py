"""The launcher: rebuilds the graphs of launch plans in a clean process, makes contents, launches, times, compares.

Trusted. Speaks the CUDA driver API through cuda-bindings and nothing else: no torch, no host code of a candidate. Must not
know tasks, verdicts or how a plan was captured.
"""
