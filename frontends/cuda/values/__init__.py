"""Values and memory while a kernel is read."""
