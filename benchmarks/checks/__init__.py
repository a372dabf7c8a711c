"""What the checker, the gate and the proofs find in kernels that are wrong on purpose, and what survives a crash."""
