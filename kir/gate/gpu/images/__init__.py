"""What a compiler made: cubins and executables, read."""
