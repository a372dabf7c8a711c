"""Random shapings of one memory: whatever factorization of it a binding declares, a kernel that addresses it flat computes the same."""
