"""The program after reading: roles, vectors and fragments seen in the code of threads."""
