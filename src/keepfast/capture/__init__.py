"""The capture: a candidate's host code run once under stream capture, on throwaway contents, turned into a launch plan.

Untrusted: whatever comes from here is data that the launcher checks. Runs in a process that is dead before anything is timed.
"""
