# id: R12
# family: replay
# task: norm
# language: torch
# expect: does-not-load
# layer: plan
# tries: import the reference, which lies next to the kernel in the repository

from reference import reference


def kernel(x, weight, epsilon):
    return reference(x, weight, epsilon)
