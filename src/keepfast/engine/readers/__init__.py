"""Readers of what benchmarks of serving engines print: one file for each engine, facts of its format, no engine's code."""
