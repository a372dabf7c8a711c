"""What the Python around a kernel works out before a launch."""
