"""The oracle of GPU tasks: the human's reference.py with torch, in a process of its own that lives as long as the judge.

Makes contents, says what is right, lints the task, measures what needs a library. Must not know candidates, clocks or verdicts.
"""
