"""Source -> IR, one sub-package per surface."""
