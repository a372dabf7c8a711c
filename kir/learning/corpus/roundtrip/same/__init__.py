"""Whether a program that was written and read back is the program that was written."""
