"""Values while a kernel is read, and the paths on which they hold."""
