"""What is known while a kernel is read, and where branches join."""
