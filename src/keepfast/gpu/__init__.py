"""What capture, launcher and judge share about GPUs: layouts of sets, launch plans, messages, checked driver calls.

Ground floor: knows no task, verdict, process or torch.
"""
