from .gate import gate_kernel as gate_kernel
