"""The program, the kernel, and the binding that belongs to it."""
